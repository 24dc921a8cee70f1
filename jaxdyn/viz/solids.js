// Triangles of the shapes, at their true size: {positions, normals} of three vertices a triangle.

const ROUND = 40;  // segments of a full turn

class Triangles {
  constructor() {
    this.positions = [];
    this.normals = [];
  }
  add(points, normals) {
    for (const p of points) this.positions.push(...p);
    for (const n of normals) this.normals.push(...n);
  }
  // Two triangles; corners in turn.
  quad(p, n) {
    this.add([p[0], p[1], p[2]], [n[0], n[1], n[2]]);
    this.add([p[0], p[2], p[3]], [n[0], n[2], n[3]]);
  }
}

// Turn a profile about z. Its points are [radius, height, and the normal's two components].
function lathe(profile, segments = ROUND) {
  const out = new Triangles();
  for (let k = 0; k < segments; k++) {
    const [a, b] = [k, k + 1].map((i) => (2 * Math.PI * i) / segments);
    for (let i = 0; i + 1 < profile.length; i++) {
      const ring = [[profile[i], a], [profile[i], b], [profile[i + 1], b], [profile[i + 1], a]];
      out.quad(
        ring.map(([[r, z], angle]) => [r * Math.cos(angle), r * Math.sin(angle), z]),
        ring.map(([[, , nr, nz], angle]) => [nr * Math.cos(angle), nr * Math.sin(angle), nz]),
      );
    }
  }
  return out;
}

// A quarter of a circle in a profile, from one angle to the other (0 outward, 90 degrees up).
function arc(centre, height, radius, from, to, steps) {
  return Array.from({ length: steps + 1 }, (_, i) => {
    const angle = from + ((to - from) * i) / steps;
    const [c, s] = [Math.cos(angle), Math.sin(angle)];
    return [centre + radius * c, height + radius * s, c, s];
  });
}

const sphere = (radius) => lathe(arc(0, 0, radius, -Math.PI / 2, Math.PI / 2, 20));

function ellipsoid(a, b, c) {
  const out = sphere(1);
  for (let i = 0; i < out.positions.length; i += 3) {
    const n = normalized([0, 1, 2].map((k) => out.normals[i + k] / Math.max([a, b, c][k], 1e-9)));
    [a, b, c].forEach((s, k) => { out.positions[i + k] *= s; out.normals[i + k] = n[k]; });
  }
  return out;
}

function capsule(radius, length) {
  return lathe([
    ...arc(0, -length / 2, radius, -Math.PI / 2, 0, 10),
    ...arc(0, length / 2, radius, 0, Math.PI / 2, 10),
  ]);
}

// A slightly rounded edge catches the light.
function cylinder(radius, length) {
  const edge = Math.min(0.12 * radius, 0.12 * length, 0.004 + 0.02 * radius);
  const [r, h] = [radius - edge, length / 2 - edge];
  return lathe([
    [0, -length / 2, 0, -1],
    ...arc(r, -h, edge, -Math.PI / 2, 0, 3),
    ...arc(r, h, edge, 0, Math.PI / 2, 3),
    [0, length / 2, 0, 1],
  ]);
}

function box(x, y, z) {
  const half = [x / 2, y / 2, z / 2];
  const edge = Math.min(0.12 * Math.min(...half), 0.006 + 0.01 * Math.min(...half));
  // Directions over one side of a cube; each point moves to a corner's centre, then along its direction.
  const steps = [[-1, -1], [-0.414, -1], [0, -1], [0, 1], [0.414, 1], [1, 1]];
  const out = new Triangles();
  for (let axis = 0; axis < 3; axis++)
    for (const side of [-1, 1]) {
      const [u, v] = [(axis + 1) % 3, (axis + 2) % 3];
      const vertex = ([a, signA], [b, signB]) => {
        const direction = [0, 0, 0], corner = [0, 0, 0];
        [direction[axis], direction[u], direction[v]] = [side, a, b];
        [corner[axis], corner[u], corner[v]] = [side, signA, signB].map((s, k) => s * (half[[axis, u, v][k]] - edge));
        const n = normalized(direction);
        return { p: add(corner, scaled(edge, n)), n };
      };
      for (let i = 0; i < 5; i++)
        for (let j = 0; j < 5; j++) {
          const corners = [
            vertex(steps[i], steps[j]), vertex(steps[i + 1], steps[j]),
            vertex(steps[i + 1], steps[j + 1]), vertex(steps[i], steps[j + 1]),
          ];
          out.quad(corners.map((c) => c.p), corners.map((c) => c.n));
        }
    }
  return out;
}

function plane(x, y, unlimited) {
  const [a, b] = [(x || unlimited) / 2, (y || unlimited) / 2];
  const out = new Triangles();
  const up = [0, 0, 1];
  out.quad([[-a, -b, 0], [a, -b, 0], [a, b, 0], [-a, b, 0]], [up, up, up, up]);
  return out;
}

// A mesh's triangles; neighbours that meet at a small angle share a normal, sharp edges stay sharp.
function meshed(vertices, faces) {
  const count = faces.length / 3;
  const flat = new Float32Array(3 * count), weighted = new Float32Array(3 * count);
  const point = (i) => [vertices[3 * i], vertices[3 * i + 1], vertices[3 * i + 2]];
  const meeting = new Map();  // vertex -> triangles at it
  for (let f = 0; f < count; f++) {
    const [a, b, c] = [0, 1, 2].map((k) => point(faces[3 * f + k]));
    const n = cross(subtract(b, a), subtract(c, a));  // as long as twice the area
    weighted.set(n, 3 * f);
    flat.set(normalized(n), 3 * f);
    for (let k = 0; k < 3; k++) {
      const at = meeting.get(faces[3 * f + k]);
      if (at) at.push(f); else meeting.set(faces[3 * f + k], [f]);
    }
  }
  const positions = new Float32Array(9 * count), normals = new Float32Array(9 * count);
  const sharp = Math.cos(Math.PI / 5);
  for (let f = 0; f < count; f++)
    for (let k = 0; k < 3; k++) {
      const vertex = faces[3 * f + k], at = 9 * f + 3 * k;
      let x = 0, y = 0, z = 0;
      for (const g of meeting.get(vertex)) {
        const cosine = flat[3 * f] * flat[3 * g] + flat[3 * f + 1] * flat[3 * g + 1] + flat[3 * f + 2] * flat[3 * g + 2];
        if (cosine < sharp) continue;
        x += weighted[3 * g];
        y += weighted[3 * g + 1];
        z += weighted[3 * g + 2];
      }
      const size = Math.hypot(x, y, z) || 1;
      positions.set([vertices[3 * vertex], vertices[3 * vertex + 1], vertices[3 * vertex + 2]], at);
      normals.set([x / size, y / size, z / size], at);
    }
  return { positions, normals };
}

// The triangles of a shape as the file describes it.
function solid(shape, meshes, unlimited) {
  const s = shape.size;
  switch (shape.kind) {
    case "box": return box(...s);
    case "sphere": return sphere(...s);
    case "ellipsoid": return ellipsoid(...s);
    case "cylinder": return cylinder(...s);
    case "capsule": return capsule(...s);
    case "plane": return plane(...s, unlimited);
    case "mesh": return meshed(meshes[shape.mesh].vertices, meshes[shape.mesh].faces);
    default: throw new Error(`unknown shape ${shape.kind}`);
  }
}
