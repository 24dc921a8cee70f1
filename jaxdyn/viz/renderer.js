// WebGL2: solids under a hemisphere of light and one lamp that casts soft shadows, a grid on the ground, ghosts.

const HEADER = `#version 300 es
precision highp float;
precision highp sampler2DShadow;
`;

// How much of the lamp's light reaches a point: the mean of sixteen looks into the shadow map.
const SHADOW = `
uniform sampler2DShadow shadow_map;
uniform mat4 lamp_matrix;
float lamplight(vec3 world) {
  vec3 p = (lamp_matrix * vec4(world, 1.0)).xyz * 0.5 + 0.5;
  if (any(lessThan(p, vec3(0.0))) || any(greaterThan(p, vec3(1.0)))) return 1.0;
  vec2 texel = 1.0 / vec2(textureSize(shadow_map, 0));
  float sum = 0.0;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      sum += texture(shadow_map, vec3(p.xy + (vec2(i, j) - 1.5) * 1.3 * texel, p.z - 0.0012));
  vec2 edge = smoothstep(vec2(0.5), vec2(0.42), abs(p.xy - 0.5));
  return mix(1.0, sum / 16.0, edge.x * edge.y);
}
`;

const SOLID_VERTEX = `${HEADER}
layout(location = 0) in vec3 position;
layout(location = 1) in vec3 normal;
uniform mat4 camera, model;
out vec3 world, turned, local;
void main() {
  vec4 p = model * vec4(position, 1.0);
  world = p.xyz;
  turned = mat3(model) * normal;
  local = position;
  gl_Position = camera * p;
}`;

const SOLID_FRAGMENT = `${HEADER}${SHADOW}
in vec3 world, turned, local;
uniform vec4 colour;
uniform vec3 eye, lamp;
uniform float ambient;
uniform int flags;  // 1: no shadows, 2: the black and white quarters of a centre of mass
out vec4 result;
void main() {
  vec3 v = normalize(eye - world);
  vec3 n = normalize(turned);
  if (dot(n, v) < 0.0) n = -n;  // seen from inside
  vec3 base = 0.86 * pow(colour.rgb, vec3(2.2));
  if ((flags & 2) != 0) base = vec3(local.x * local.y * local.z > 0.0 ? 0.01 : 0.9);
  float lit = (flags & 1) != 0 ? 1.0 : lamplight(world + 0.002 * n);
  float facing = max(dot(n, lamp), 0.0) * lit;
  vec3 hemisphere = mix(vec3(0.24, 0.235, 0.23), vec3(0.50, 0.53, 0.57), 0.5 + 0.5 * n.z) * ambient;
  float fill = 0.16 * max(dot(n, v), 0.0);
  float gloss = pow(max(dot(n, normalize(lamp + v)), 0.0), 42.0) * lit;
  float rim = pow(1.0 - max(dot(n, v), 0.0), 4.0);
  vec3 light = base * (hemisphere + fill + facing * vec3(0.66, 0.64, 0.60)) + 0.13 * gloss + 0.035 * rim;
  result = vec4(pow(light, vec3(1.0 / 2.2)), colour.a);
}`;

const DEPTH_FRAGMENT = `${HEADER}
out vec4 result;
void main() { result = vec4(1.0); }`;

const GROUND_VERTEX = `${HEADER}
uniform mat4 camera;
uniform vec4 place;  // centre x, y, height, half the width
out vec3 world;
void main() {
  vec2 corner = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.0 - 1.0;
  world = vec3(place.xy + corner * place.w, place.z);
  gl_Position = camera * vec4(world, 1.0);
}`;

const GROUND_FRAGMENT = `${HEADER}${SHADOW}
in vec3 world;
uniform vec4 place;
uniform float cell, gridded;
uniform vec3 eye, ground, line, shade;
out vec4 result;
float lines(float size) {
  vec2 p = world.xy / size, width = fwidth(p);
  vec2 distance = abs(fract(p - 0.5) - 0.5) / max(width, 1e-6);
  float drawn = 1.0 - min(min(distance.x, distance.y), 1.0);
  return drawn * (1.0 - smoothstep(0.2, 0.6, max(width.x, width.y)));  // too fine to be seen: gone
}
void main() {
  float away = length(world.xy - place.xy) / place.w;
  float near = 1.0 - smoothstep(0.08, 0.8, away);
  float drawn = gridded * max(0.30 * lines(cell), 0.75 * lines(5.0 * cell));
  vec3 colour = mix(ground, line, drawn);
  float dark = 1.0 - lamplight(world);
  colour = mix(colour, shade, 0.34 * dark);
  float below = eye.z < place.z ? 0.15 : 1.0;
  result = vec4(colour, near * below);
}`;

const SKY_VERTEX = `${HEADER}
out vec2 at;
void main() {
  at = vec2(gl_VertexID & 1, gl_VertexID >> 1);
  gl_Position = vec4(at * 2.0 - 1.0, 1.0, 1.0);
}`;

const SKY_FRAGMENT = `${HEADER}
in vec2 at;
uniform vec3 sky, horizon;
out vec4 result;
void main() {
  result = vec4(mix(horizon, sky, smoothstep(0.1, 1.0, at.y)), 1.0);
}`;

const SHADOW_SIZE = 2048;
const LAMP = normalized([-0.1, -0.6, 1.1]);  // where the light comes from

class Renderer {
  constructor(canvas) {
    const gl = canvas.getContext("webgl2", { antialias: true, alpha: false });
    if (!gl) throw new Error("no WebGL2");
    this.gl = gl;
    this.canvas = canvas;
    this.programs = {
      solid: this.program(SOLID_VERTEX, SOLID_FRAGMENT),
      depth: this.program(SOLID_VERTEX, DEPTH_FRAGMENT),
      ground: this.program(GROUND_VERTEX, GROUND_FRAGMENT),
      sky: this.program(SKY_VERTEX, SKY_FRAGMENT),
    };
    this.nothing = gl.createVertexArray();
    this.makeShadowMap();
  }

  program(vertex, fragment) {
    const gl = this.gl, program = gl.createProgram();
    for (const [type, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(type);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost())
        throw new Error(gl.getShaderInfoLog(shader));
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost())
      throw new Error(gl.getProgramInfoLog(program));
    const uniforms = {};
    for (let i = 0; i < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); i++) {
      const { name } = gl.getActiveUniform(program, i);
      uniforms[name] = gl.getUniformLocation(program, name);
    }
    return { program, uniforms };
  }

  makeShadowMap() {
    const gl = this.gl;
    this.shadowMap = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, this.shadowMap);
    gl.texStorage2D(gl.TEXTURE_2D, 1, gl.DEPTH_COMPONENT24, SHADOW_SIZE, SHADOW_SIZE);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_COMPARE_MODE, gl.COMPARE_REF_TO_TEXTURE);
    for (const filter of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, filter, gl.LINEAR);
    for (const wrap of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, wrap, gl.CLAMP_TO_EDGE);
    this.shadowBuffer = gl.createFramebuffer();
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.shadowBuffer);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.DEPTH_ATTACHMENT, gl.TEXTURE_2D, this.shadowMap, 0);
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
  }

  // Triangles to the graphics card.
  upload({ positions, normals }) {
    const gl = this.gl, array = gl.createVertexArray();
    gl.bindVertexArray(array);
    [positions, normals].forEach((values, location) => {
      gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
      gl.bufferData(gl.ARRAY_BUFFER, values instanceof Float32Array ? values : new Float32Array(values), gl.STATIC_DRAW);
      gl.enableVertexAttribArray(location);
      gl.vertexAttribPointer(location, 3, gl.FLOAT, false, 0, 0);
    });
    gl.bindVertexArray(null);
    return { array, count: positions.length / 3 };
  }

  use(name, values) {
    const gl = this.gl, { program, uniforms } = this.programs[name];
    gl.useProgram(program);
    this.uniforms = uniforms;
    for (const [key, value] of Object.entries(values)) {
      const location = uniforms[key];
      if (!location) continue;
      if (typeof value === "number") gl.uniform1f(location, value);
      else if (value.length === 16) gl.uniformMatrix4fv(location, false, value);
      else if (value.length === 4) gl.uniform4fv(location, value);
      else gl.uniform3fv(location, value);
    }
  }

  // Items are {solid, matrix, colour, flags}; opacity multiplies that of their colours.
  items(items, opacity = 1) {
    const gl = this.gl, u = this.uniforms;
    for (const { solid, matrix, colour, flags = 0 } of items) {
      gl.uniformMatrix4fv(u.model, false, matrix);
      if (u.colour) gl.uniform4f(u.colour, colour[0], colour[1], colour[2], colour[3] * opacity);
      if (u.flags) gl.uniform1i(u.flags, flags);
      gl.bindVertexArray(solid.array);
      gl.drawArrays(gl.TRIANGLES, 0, solid.count);
    }
  }

  // scene: {items, ghosts, overlay, ground: {place, cell, gridded}, focus: {centre, radius, drop}}; camera: {matrix, eye}.
  draw(scene, camera, theme) {
    const gl = this.gl;
    const opaque = scene.items.filter((item) => item.colour[3] >= 0.999);
    const glassy = scene.items.filter((item) => item.colour[3] < 0.999);
    const lampMatrix = this.drawShadows(opaque, scene.focus);

    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clear(gl.DEPTH_BUFFER_BIT);
    gl.bindTexture(gl.TEXTURE_2D, this.shadowMap);

    gl.disable(gl.DEPTH_TEST);
    gl.bindVertexArray(this.nothing);
    this.use("sky", theme);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);

    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    this.use("ground", {
      ...theme, camera: camera.matrix, eye: camera.eye, lamp_matrix: lampMatrix,
      place: scene.ground.place, cell: scene.ground.cell, gridded: scene.ground.gridded ? 1 : 0,
    });
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);

    gl.enable(gl.DEPTH_TEST);
    gl.depthFunc(gl.LEQUAL);
    const lighting = { camera: camera.matrix, eye: camera.eye, lamp: LAMP, lamp_matrix: lampMatrix, ambient: theme.ambient };
    gl.disable(gl.BLEND);
    this.use("solid", lighting);
    this.items(opaque);

    // Ghosts: first their depth, so that only the nearest surface of each shines through. They stand back a little:
    // where one is in the same place as the robot, the robot is seen.
    gl.enable(gl.POLYGON_OFFSET_FILL);
    gl.polygonOffset(1, 8);
    for (const ghost of scene.ghosts) {
      this.use("depth", lighting);
      gl.colorMask(false, false, false, false);
      this.items(ghost);
      gl.colorMask(true, true, true, true);
      gl.enable(gl.BLEND);
      this.use("solid", lighting);
      this.items(ghost.map((item) => ({ ...item, flags: 1 })), scene.ghostOpacity);
    }
    gl.disable(gl.POLYGON_OFFSET_FILL);

    gl.enable(gl.BLEND);
    this.use("solid", lighting);
    gl.depthMask(false);
    this.items(glassy);
    gl.depthMask(true);

    // Marks lie over everything.
    gl.clear(gl.DEPTH_BUFFER_BIT);
    this.items(scene.overlay);
    gl.disable(gl.BLEND);
    gl.bindVertexArray(null);
  }

  // Draw the depth of everything as the lamp sees it, and return the lamp's matrix.
  drawShadows(items, focus) {
    const gl = this.gl;
    const eye = add(focus.centre, scaled(2 * focus.radius, LAMP));
    const far = 3 * focus.radius + focus.drop / LAMP[2];  // beyond the ground under the robot
    const matrix = multiply(orthographic(focus.radius, 0, far), lookAt(eye, focus.centre, [0, 1, 0]));
    gl.bindTexture(gl.TEXTURE_2D, null);  // not read while it is drawn
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.shadowBuffer);
    gl.viewport(0, 0, SHADOW_SIZE, SHADOW_SIZE);
    gl.enable(gl.DEPTH_TEST);
    gl.depthMask(true);
    gl.disable(gl.BLEND);
    gl.enable(gl.POLYGON_OFFSET_FILL);
    gl.polygonOffset(2, 4);
    gl.clear(gl.DEPTH_BUFFER_BIT);
    this.use("depth", { camera: matrix });
    this.items(items);
    gl.disable(gl.POLYGON_OFFSET_FILL);
    return matrix;
  }
}
