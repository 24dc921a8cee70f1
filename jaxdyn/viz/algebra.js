"use strict";
// Vectors are arrays of three; matrices are 4 x 4, column after column, as WebGL wants them; quaternions are w, x, y, z.

const add = (a, b) => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
const subtract = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const scaled = (s, a) => [s * a[0], s * a[1], s * a[2]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const normalized = (a) => scaled(1 / (Math.hypot(...a) || 1), a);
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

function multiply(a, b) {
  const c = new Float32Array(16);
  for (let j = 0; j < 16; j += 4)
    for (let i = 0; i < 4; i++)
      c[i + j] = a[i] * b[j] + a[i + 4] * b[j + 1] + a[i + 8] * b[j + 2] + a[i + 12] * b[j + 3];
  return c;
}

// A pose, seven numbers from `start` on: quaternion, then position.
function rigid(pose, start = 0) {
  const [w, x, y, z] = [0, 1, 2, 3].map((i) => pose[start + i]);
  const s = 2 / (w * w + x * x + y * y + z * z || 1);
  return new Float32Array([
    1 - s * (y * y + z * z), s * (x * y + w * z), s * (x * z - w * y), 0,
    s * (x * y - w * z), 1 - s * (x * x + z * z), s * (y * z + w * x), 0,
    s * (x * z + w * y), s * (y * z - w * x), 1 - s * (x * x + y * y), 0,
    pose[start + 4], pose[start + 5], pose[start + 6], 1,
  ]);
}

const apply = (m, p) => [0, 1, 2].map((i) => m[i] * p[0] + m[i + 4] * p[1] + m[i + 8] * p[2] + m[i + 12]);

function perspective(fieldOfView, aspect, near, far) {
  const f = 1 / Math.tan(fieldOfView / 2);
  const m = new Float32Array(16);
  m[0] = f / aspect;
  m[5] = f;
  m[10] = (far + near) / (near - far);
  m[11] = -1;
  m[14] = (2 * far * near) / (near - far);
  return m;
}

function orthographic(half, near, far) {
  const m = new Float32Array(16);
  m[0] = m[5] = 1 / half;
  m[10] = 2 / (near - far);
  m[14] = (far + near) / (near - far);
  m[15] = 1;
  return m;
}

function lookAt(eye, target, up) {
  const back = normalized(subtract(eye, target));
  const right = normalized(cross(up, back));
  const above = cross(back, right);
  return new Float32Array([
    right[0], above[0], back[0], 0,
    right[1], above[1], back[1], 0,
    right[2], above[2], back[2], 0,
    -dot(right, eye), -dot(above, eye), -dot(back, eye), 1,
  ]);
}

// An axis-aligned box that grows.
class Bounds {
  constructor() {
    this.low = [Infinity, Infinity, Infinity];
    this.high = [-Infinity, -Infinity, -Infinity];
  }
  include(p) {
    for (let i = 0; i < 3; i++) {
      this.low[i] = Math.min(this.low[i], p[i]);
      this.high[i] = Math.max(this.high[i], p[i]);
    }
  }
  get empty() { return !(this.low[0] <= this.high[0]); }
  get centre() { return scaled(0.5, add(this.low, this.high)); }
  get radius() { return Math.hypot(...subtract(this.high, this.low)) / 2; }
  corners() {
    const ends = [this.low, this.high];
    return [0, 1, 2, 3, 4, 5, 6, 7].map((k) => [ends[k & 1][0], ends[(k >> 1) & 1][1], ends[(k >> 2) & 1][2]]);
  }
}
