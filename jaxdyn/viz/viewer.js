// The page's program: what the recording says, the camera, the player, the options; and `window.jaxdyn` for scripts.

const find = (id) => document.getElementById(id);
const options = new URLSearchParams(location.search);
const FIELD_OF_VIEW = 0.5;  // radians, upright: a long lens
const VIEWS = {  // yaw and pitch of the camera about the robot, x forward, z up
  corner: [-0.85, 0.3], front: [0, 0.05], side: [-Math.PI / 2, 0.05], top: [-Math.PI / 2, Math.PI / 2],
};
const AXES = [[0.85, 0.22, 0.2, 1], [0.25, 0.65, 0.27, 1], [0.2, 0.42, 0.88, 1]];
const TOGGLES = {  // name: [label, shown at first, hint]
  ghosts: ["Ghosts", true, "The other runs (G)"],
  frames: ["Frames", false, "Axes of the bodies: x red, y green, z blue (A)"],
  com: ["CoM", false, "Centre of mass (C)"],
  collisions: ["Collisions", false, "Collision shapes"],
  grid: ["Grid", true, "Grid on the ground"],
  follow: ["Follow", false, "Let the camera go along with the robot"],
  plots: ["Plots", true, "Plots of the joints (P)"],
};
const KEYS = { g: "ghosts", a: "frames", c: "com", p: "plots" };

// An array of the recording: {values, shape}.
function decode({ type, shape, data }) {
  const text = atob(data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const kinds = { f4: Float32Array, f8: Float64Array, u4: Uint32Array };
  return { values: new kinds[type](bytes.buffer), shape };
}

// One array per run of an array (runs, ...).
function byRun({ values, shape }) {
  const size = values.length / shape[0];
  return Array.from({ length: shape[0] }, (_, i) => values.subarray(i * size, (i + 1) * size));
}

function say(text) {
  find("message").textContent = text;
  find("message").hidden = false;
}

class Viewer {
  constructor(data) {
    this.data = data;
    this.times = decode(data.t).values;
    this.frames = this.times.length;
    this.poses = byRun(decode(data.poses));
    this.com = byRun(decode(data.com));
    this.nbodies = data.bodies.length;
    this.meshes = data.meshes.map((mesh) => ({ vertices: decode(mesh.vertices).values, faces: decode(mesh.faces).values }));
    this.time = this.times[0];
    this.run = 0;
    this.playing = false;
    this.speed = 1;
    this.shown = Object.fromEntries(Object.entries(TOGGLES).map(([name, [, first]]) => [name, first]));
    this.canvas = find("canvas");
    this.renderer = new Renderer(this.canvas);
    this.makeSolids();
    this.measure();
    this.makePlots();
    this.restyle();
    this.makeControls();
    this.listen();
    this.view("corner");
    this.obey(options);
    this.resize();
  }

  // ---- the scene -------------------------------------------------------------------------------------------------

  makeSolids() {
    const level = (shape) => shape.kind === "plane" && shape.body < 0 && Math.abs(rigid(shape.pose)[10]) > 0.999;
    // A level plane in the world is the ground; the grid stands for it.
    this.floor = this.data.shapes.filter(level).map((shape) => shape.pose[6]);
    this.shapes = this.data.shapes.filter((shape) => !level(shape));
    this.boxes = Array.from({ length: this.nbodies + 1 }, () => new Bounds());  // per body, the world last
    const known = new Map();
    for (const shape of this.shapes) {
      const key = JSON.stringify([shape.kind, shape.size, shape.mesh]);
      if (!known.has(key)) {
        const triangles = solid(shape, this.meshes, 10), bounds = new Bounds();
        for (let i = 0; i < triangles.positions.length; i += 3)
          bounds.include([triangles.positions[i], triangles.positions[i + 1], triangles.positions[i + 2]]);
        known.set(key, { ...this.renderer.upload(triangles), bounds });
      }
      shape.solid = known.get(key);
      shape.matrix = rigid(shape.pose);
      if (shape.kind !== "plane" && !shape.solid.bounds.empty)
        for (const corner of shape.solid.bounds.corners()) this.boxes.at(shape.body).include(apply(shape.matrix, corner));
    }
    this.meshes = null;  // the graphics card has them now
  }

  // How much room all runs take, and what follows from it.
  measure() {
    const all = new Bounds(), step = Math.max(1, Math.floor(this.frames / 150));
    this.outline = [];  // points that the camera should see
    for (let run = 0; run < this.poses.length; run++)
      for (let frame = 0; frame < this.frames; frame += step) this.around(run, frame, 0, all, this.outline);
    if (all.empty) [[-0.5, -0.5, 0], [0.5, 0.5, 1]].forEach((corner) => all.include(corner));
    const every = Math.ceil(this.outline.length / 20000);
    this.outline = this.outline.length ? this.outline.filter((_, i) => i % every === 0) : all.corners();
    this.bounds = all;
    const now = this.around(0, 0, 0, new Bounds());
    this.reach = (now.empty ? all : now).radius || 1;  // of the robot alone
    const low = all.low[2], high = all.high[2] - low;
    const natural = low >= -0.02 * (high || 1) && low < 4 * (high || 1) ? 0 : low;
    const height = this.floor.length ? Math.max(...this.floor) : natural;
    const radius = Math.max(all.radius, 1e-3);
    const power = 10 ** Math.floor(Math.log10(radius / 4));
    this.ground = {
      place: [all.centre[0], all.centre[1], height - 1e-3 * radius, 9 * radius],
      cell: power * [1, 2, 5].findLast((m) => m * power <= radius / 4),
    };
    const mark = Math.max(this.reach, 0.4 * radius);  // marks are seen on a small robot that goes far, too
    const length = 0.11 * mark;
    this.axes = AXES.map((colour, i) => {
      const pose = [[Math.SQRT1_2, 0, Math.SQRT1_2, 0], [Math.SQRT1_2, -Math.SQRT1_2, 0, 0], [1, 0, 0, 0]][i];
      const middle = [0, 0, 0];
      middle[i] = length / 2;
      return { matrix: rigid([...pose, ...middle]), colour };
    });
    this.axisSolid = this.renderer.upload(cylinder(0.0065 * mark, length));
    this.comSolid = this.renderer.upload(sphere(0.042 * mark));
  }

  // The poses of a run between two frames: matrices of all bodies, then the world's.
  matrices(run, frame, fraction) {
    const values = this.poses[run], size = 7 * this.nbodies, next = Math.min(frame + 1, this.frames - 1);
    const found = [], pose = new Float32Array(7);
    for (let body = 0; body < this.nbodies; body++) {
      const a = frame * size + 7 * body, b = next * size + 7 * body;
      let cosine = 0;
      for (let i = 0; i < 4; i++) cosine += values[a + i] * values[b + i];
      for (let i = 0; i < 7; i++) {
        const sign = i < 4 && cosine < 0 ? -1 : 1;  // the shorter way
        pose[i] = (1 - fraction) * values[a + i] + sign * fraction * values[b + i];
      }
      found.push(rigid(pose));
    }
    found.push(rigid([1, 0, 0, 0, 0, 0, 0]));
    return found;
  }

  // Let bounds grow around a run's bodies at a moment, and note the corners of their boxes.
  around(run, frame, fraction, bounds, corners = null) {
    const matrices = this.matrices(run, frame, fraction);
    this.boxes.forEach((box, body) => {
      if (box.empty) return;
      for (const corner of box.corners()) {
        const point = apply(matrices[body], corner);
        bounds.include(point);
        corners?.push(point);
      }
    });
    return bounds;
  }

  // Frame and fraction of the way to the next one.
  get moment() {
    let low = 0, high = this.frames - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.times[middle] <= this.time) low = middle; else high = middle;
    }
    const [a, b] = [this.times[low], this.times[high]];
    return [low, b > a ? clamp((this.time - a) / (b - a), 0, 1) : 0];
  }

  get frame() {
    const [frame, fraction] = this.moment;
    return Math.min(frame + Math.round(fraction), this.frames - 1);
  }

  centreOfMass(run, [frame, fraction]) {
    const next = Math.min(frame + 1, this.frames - 1), values = this.com[run];
    return [0, 1, 2].map((i) => (1 - fraction) * values[3 * frame + i] + fraction * values[3 * next + i]);
  }

  items(run, moment) {
    const matrices = this.matrices(run, ...moment);
    return this.shapes
      .filter((shape) => !shape.collision || (this.shown.collisions && run === this.run))
      .filter((shape) => shape.body >= 0 || run === this.run)
      .map((shape) => ({
        solid: shape.solid,
        matrix: multiply(matrices.at(shape.body), shape.matrix),
        colour: shape.collision ? [0.95, 0.55, 0.15, 0.35] : shape.colour,
      }));
  }

  marks(moment) {
    const found = [];
    if (this.shown.frames)
      for (const matrix of this.matrices(this.run, ...moment).slice(0, -1))
        for (const axis of this.axes)
          found.push({ solid: this.axisSolid, matrix: multiply(matrix, axis.matrix), colour: axis.colour, flags: 1 });
    if (this.shown.com) {
      const matrix = rigid([1, 0, 0, 0, ...this.centreOfMass(this.run, moment)]);
      found.push({ solid: this.comSolid, matrix, colour: [1, 1, 1, 1], flags: 3 });
    }
    return found;
  }

  draw() {
    const moment = this.moment, others = this.poses.map((_, run) => run).filter((run) => run !== this.run);
    const now = this.around(this.run, ...moment, new Bounds());
    const around = now.empty ? this.bounds : now;
    this.renderer.draw(
      {
        items: this.items(this.run, moment),
        ghosts: this.shown.ghosts ? others.map((run) => this.items(run, moment)) : [],
        ghostOpacity: clamp(0.42 / Math.sqrt(others.length || 1), 0.14, 0.34),
        overlay: this.marks(moment),
        ground: { ...this.ground, gridded: this.shown.grid },
        focus: {
          centre: around.centre,
          radius: 1.1 * around.radius,
          drop: Math.max(around.centre[2] - this.ground.place[2], around.radius) + 2 * around.radius,
        },
      },
      this.camera(moment),
      this.theme,
    );
    for (const plot of this.plots) plot.cursor(this.time);
    find("slider").value = this.frame;
    const digits = this.times.at(-1) - this.times[0] < 1 ? 3 : 2;
    find("clock").value = `${this.time.toFixed(digits)} / ${this.times.at(-1).toFixed(digits)} s`;
    this.tellValues(moment);
  }

  // ---- the camera ------------------------------------------------------------------------------------------------

  camera(moment) {
    const { yaw, pitch, distance } = this;
    let target = this.target;
    if (this.shown.follow) {
      const shift = subtract(this.centreOfMass(this.run, moment), this.centreOfMass(0, [0, 0]));
      target = add(target, [shift[0], shift[1], 0]);
    }
    const eye = add(target, scaled(distance, this.direction()));
    const up = [-Math.sin(pitch) * Math.cos(yaw), -Math.sin(pitch) * Math.sin(yaw), Math.cos(pitch)];
    const far = 4 * distance + 20 * this.bounds.radius;
    const aspect = this.canvas.width / this.canvas.height;
    return { eye, matrix: multiply(perspective(FIELD_OF_VIEW, aspect, distance / 60, far), lookAt(eye, target, up)) };
  }

  // From the target to the eye.
  direction() {
    const { yaw, pitch } = this;
    return [Math.cos(pitch) * Math.cos(yaw), Math.cos(pitch) * Math.sin(yaw), Math.sin(pitch)];
  }

  // Go where the whole motion is in sight: in the middle of what is seen, as near as its outermost points allow.
  fit() {
    const toEye = this.direction(), right = [-Math.sin(this.yaw), Math.cos(this.yaw), 0], up = cross(toEye, right);
    const middle = (axis) => {
      let low = Infinity, high = -Infinity;
      for (const point of this.outline) {
        const along = dot(point, axis);
        low = Math.min(low, along);
        high = Math.max(high, along);
      }
      return scaled((low + high) / 2, axis);
    };
    this.target = add(middle(right), add(middle(up), middle(toEye)));
    const room = 0.82 * Math.tan(FIELD_OF_VIEW / 2);
    const aspect = this.canvas.clientWidth / Math.max(this.canvas.clientHeight, 1);
    this.distance = 1e-3;
    for (const point of this.outline) {
      const p = subtract(point, this.target);
      const across = Math.max(Math.abs(dot(p, up)), Math.abs(dot(p, right)) / aspect);
      this.distance = Math.max(this.distance, dot(p, toEye) + across / room);
    }
    this.fitted = true;
    this.refresh();
  }

  view(name) {
    if (!VIEWS[name]) return;
    [this.yaw, this.pitch] = VIEWS[name];
    find("view").value = name;
    this.fit();
  }

  turn(dx, dy) {
    this.yaw -= 0.007 * dx;
    this.pitch = clamp(this.pitch + 0.007 * dy, -1.5, Math.PI / 2);
    find("view").value = "free";
    this.refresh();
  }

  pan(dx, dy) {
    const perPixel = (2 * this.distance * Math.tan(FIELD_OF_VIEW / 2)) / this.canvas.clientHeight;
    const right = [-Math.sin(this.yaw), Math.cos(this.yaw), 0], up = cross(this.direction(), right);
    this.target = add(this.target, add(scaled(-dx * perPixel, right), scaled(dy * perPixel, up)));
    this.fitted = false;
    this.refresh();
  }

  zoom(factor) {
    this.distance = clamp(this.distance * factor, 0.05 * this.reach, 40 * this.bounds.radius);
    this.fitted = false;
    this.refresh();
  }

  // ---- the player ------------------------------------------------------------------------------------------------

  play() {
    if (this.frames < 2 || this.playing) return;
    if (this.time >= this.times.at(-1)) this.time = this.times[0];
    this.playing = true;
    this.last = null;
    this.showPlaying();
    this.refresh();
  }

  pause() {
    this.playing = false;
    this.showPlaying();
  }

  showPlaying() {
    find("play-icon").setAttribute("d", this.playing ? "M5 3.5h3.6v13H5zM11.4 3.5H15v13h-3.6z" : "M6 3.5v13l11-6.5z");
    find("play").setAttribute("aria-label", this.playing ? "Pause" : "Play");
  }

  setTime(time) {
    this.time = clamp(time, this.times[0], this.times.at(-1));
    this.refresh();
  }

  setFrame(frame) { this.setTime(this.times[clamp(Math.round(frame), 0, this.frames - 1)]); }

  // Draw at the next opportunity, once.
  refresh() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame((now) => this.tick(now));
  }

  tick(now) {
    this.waiting = false;
    if (this.playing) {
      const elapsed = this.last === null ? 0 : Math.min((now - this.last) / 1000, 0.1);
      this.last = now;
      const [first, end] = [this.times[0], this.times.at(-1)];
      this.time += elapsed * this.speed;
      if (this.time > end) this.time = first + ((this.time - first) % (end - first));
    }
    this.draw();
    if (this.playing) this.refresh();
  }

  // ---- plots and legend ------------------------------------------------------------------------------------------

  makePlots() {
    const joints = this.data.joints.filter((joint) => joint.q[1] > 0);
    const simple = joints.filter((joint) => joint.q[1] === 1);
    // A floating base's coordinates would dwarf those of the joints.
    this.hidden = new Set(simple.length ? joints.filter((joint) => joint.q[1] > 1).map((joint) => joint.name) : []);
    this.highlighted = null;
    const curves = { q: [], qd: [] };
    this.legend = joints.map((joint, k) => {
      const hue = joints.length <= 8 ? (210 + (360 * k) / Math.max(joints.length, 1)) % 360 : (210 + 137.508 * k) % 360;
      for (const name of ["q", "qd"])
        for (let i = 0; i < joint[name][1]; i++) {
          const spread = joint[name][1] > 1 ? (300 * i) / joint[name][1] : 0;
          const colour = `hsl(${(hue + spread) % 360} 58% 54%)`;
          curves[name].push({ column: joint[name][0] + i, colour, joint: joint.name });
        }
      return { joint, colour: `hsl(${hue} 58% 54%)` };
    });
    this.plots = [];
    for (const name of ["q", "qd"]) {
      const canvas = find(`plot-${name}`);
      if (!this.data[name] || !curves[name].length) {
        canvas.parentElement.hidden = true;
        find("plots").classList.add("single");
        continue;
      }
      const array = decode(this.data[name]), runs = byRun(array);
      if (name === "q") this.q = runs;
      this.plots.push(new Plot(canvas, this.times, runs, array.shape[2], curves[name], (time) => {
        this.pause();
        this.setTime(time);
      }));
    }
    for (const entry of this.legend) {
      const button = document.createElement("button"), swatch = document.createElement("i");
      const label = document.createElement("span"), value = document.createElement("b");
      swatch.style.background = entry.colour;
      label.textContent = button.title = entry.joint.name;
      button.type = "button";
      button.append(swatch, label, value);
      button.setAttribute("aria-pressed", !this.hidden.has(entry.joint.name));
      button.addEventListener("click", () => {
        const { name } = entry.joint;
        if (!this.hidden.delete(name)) this.hidden.add(name);
        button.setAttribute("aria-pressed", !this.hidden.has(name));
        this.paintPlots();
      });
      for (const [type, name] of [["pointerenter", entry.joint.name], ["pointerleave", null]])
        button.addEventListener(type, () => { this.highlighted = name; this.paintPlots(); });
      entry.value = value;
      const line = document.createElement("li");
      line.append(button);
      find("legend").append(line);
    }
  }

  paintPlots() {
    const { run, hidden, style } = this;
    const highlighted = this.hidden.has(this.highlighted) ? null : this.highlighted;
    for (const plot of this.plots) plot.paint({ run, hidden, highlighted, style, others: this.shown.ghosts && this.poses.length > 1 });
    this.refresh();
  }

  // Coordinates of simple joints beside their names.
  tellValues([frame, fraction]) {
    if (!this.shown.plots || !this.q) return;
    const values = this.q[this.run], width = values.length / this.frames, next = Math.min(frame + 1, this.frames - 1);
    for (const { joint, value } of this.legend) {
      if (joint.q[1] !== 1) continue;
      const q = (1 - fraction) * values[frame * width + joint.q[0]] + fraction * values[next * width + joint.q[0]];
      const text = (Math.round(100 * q) / 100 || 0).toFixed(2).replace("-", "\u2212");
      if (value.textContent !== text) value.textContent = text;
    }
  }

  // ---- controls --------------------------------------------------------------------------------------------------

  makeControls() {
    const { data } = this, several = this.poses.length > 1;
    const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
    const facts = [count(this.nbodies, "body").replace("bodys", "bodies"), `${(this.times.at(-1) - this.times[0]).toFixed(2)} s`];
    if (data.runs > 1) facts.push(several && data.runs > this.poses.length ? `${this.poses.length} of ${data.runs} runs` : count(data.runs, "run"));
    if (data.model !== data.title) facts.unshift(data.model);
    find("facts").textContent = facts.join(" \u00b7 ");

    const possible = {
      ghosts: several, collisions: this.shapes.some((shape) => shape.collision), plots: this.plots.length > 0 && this.frames > 1,
    };
    this.buttons = {};
    for (const [name, [label, , hint]] of Object.entries(TOGGLES)) {
      if (possible[name] === false) continue;
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: "toggle", textContent: label, title: hint });
      button.addEventListener("click", () => this.set(name, !this.shown[name]));
      this.buttons[name] = button;
      find("toggles").append(button);
    }
    for (const name of Object.keys(TOGGLES)) this.set(name, this.shown[name] && possible[name] !== false);

    find("run-choice").hidden = !several;
    this.poses.forEach((_, run) => find("run").add(new Option(run + 1, run)));
    find("slider").max = this.frames - 1;
    find("slider").disabled = find("play").disabled = this.frames < 2;
  }

  set(name, on) {
    this.shown[name] = Boolean(on);
    this.buttons[name]?.setAttribute("aria-pressed", this.shown[name]);
    if (name === "plots") find("plots").hidden = !this.shown.plots;
    if (name === "ghosts") this.paintPlots();
    this.refresh();
  }

  setRun(run) {
    this.run = clamp(Math.round(run), 0, this.poses.length - 1);
    find("run").value = this.run;
    this.paintPlots();
  }

  setSpeed(speed) {
    const select = find("speed");
    if (![...select.options].some((option) => Number(option.value) === speed)) select.add(new Option(`${speed}\u00d7`, speed));
    select.value = this.speed = speed;
  }

  listen() {
    const { canvas } = this;
    find("play").addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    find("slider").addEventListener("input", (event) => { this.pause(); this.setFrame(Number(event.target.value)); });
    find("speed").addEventListener("change", (event) => { this.setSpeed(Number(event.target.value)); });
    find("view").addEventListener("change", (event) => this.view(event.target.value));
    find("run").addEventListener("change", (event) => this.setRun(Number(event.target.value)));

    const pointers = new Map();
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event);
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
      pointers.set(event.pointerId, event);
      if (pointers.size === 1) {
        if (event.shiftKey || event.buttons & 6) this.pan(dx, dy); else this.turn(dx, dy);
        return;
      }
      // Two fingers: their middle moves the scene, their distance zooms.
      const other = [...pointers.values()].find((pointer) => pointer.pointerId !== event.pointerId);
      const apart = (pointer) => Math.hypot(pointer.clientX - other.clientX, pointer.clientY - other.clientY) || 1;
      this.pan(dx / 2, dy / 2);
      this.zoom(apart(before) / apart(event));
    });
    for (const end of ["pointerup", "pointercancel"])
      canvas.addEventListener(end, (event) => pointers.delete(event.pointerId));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(clamp(event.deltaY, -120, 120) * 0.0014));
    }, { passive: false });
    canvas.addEventListener("dblclick", () => this.fit());
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextlost", () => say("The graphics card was lost. Reload the page."));

    window.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resize()).observe(find("scene"));
    new ResizeObserver(() => this.paintPlots()).observe(find("plots"));
    darkness.addEventListener("change", () => { chooseTheme(); this.restyle(); });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: 10, ArrowDown: -10 }[event.key];
    if (event.key === " ") this.playing ? this.pause() : this.play();
    else if (step) { this.pause(); this.setFrame(this.frame + step * (event.shiftKey ? 10 : 1)); }
    else if (event.key === "Home") this.setFrame(0);
    else if (event.key === "End") this.setFrame(this.frames - 1);
    else if (event.key === "f") this.fit();
    else if (KEYS[event.key] && this.buttons[KEYS[event.key]]) this.set(KEYS[event.key], !this.shown[KEYS[event.key]]);
    else return;
    event.preventDefault();
  }

  resize() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2), { canvas } = this;
    const size = [canvas.clientWidth, canvas.clientHeight].map((pixels) => Math.max(1, Math.round(pixels * ratio)));
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    if (this.fitted) this.fit();
    this.draw();  // at once: a canvas that changes its size is blank
  }

  // Take colours from the style sheet.
  restyle() {
    const style = getComputedStyle(document.documentElement);
    const text = (name) => style.getPropertyValue(`--${name}`).trim();
    const number = (name) => [1, 3, 5].map((i) => parseInt(text(name).slice(i, i + 2), 16) / 255);
    this.style = { line: text("line"), faint: text("faint"), accent: text("accent") };
    const dark = number("sky")[0] < 0.5;
    this.theme = {
      sky: number("sky"), horizon: number("horizon"), ground: number("ground"), line: number("grid"),
      shade: dark ? [0.02, 0.03, 0.04] : [0.30, 0.34, 0.40], ambient: dark ? 0.8 : 1,
    };
    this.paintPlots();
  }

  // What the address asks for: ?frame=30&view=side&ghosts=0 and the like.
  obey(wishes) {
    const number = (name) => (wishes.has(name) && Number.isFinite(Number(wishes.get(name))) ? Number(wishes.get(name)) : null);
    for (const name of Object.keys(TOGGLES)) if (wishes.has(name) && this.buttons[name]) this.set(name, wishes.get(name) !== "0");
    if (number("run") !== null) this.setRun(number("run") - 1);
    if (number("speed") > 0) this.setSpeed(number("speed"));
    if (wishes.has("view")) this.view(wishes.get("view"));
    if (number("yaw") !== null || number("pitch") !== null) {
      this.yaw = ((number("yaw") ?? (this.yaw * 180) / Math.PI) * Math.PI) / 180;
      this.pitch = ((number("pitch") ?? (this.pitch * 180) / Math.PI) * Math.PI) / 180;
      find("view").value = "free";
      this.fit();
    }
    if (number("zoom") > 0) this.zoom(1 / number("zoom"));
    if (number("frame") !== null) this.setFrame(number("frame"));
    const still = number("frame") !== null || matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (wishes.has("play") ? wishes.get("play") !== "0" : !still) this.play();
  }
}

try {
  const viewer = new Viewer(JSON.parse(find("recording").textContent));
  const error = viewer.renderer.gl.getError();
  if (error) window.jaxdyn.errors.push(`WebGL error ${error}`);
  Object.assign(window.jaxdyn, {
    viewer,
    ready: true,
    frames: viewer.frames,
    runs: viewer.poses.length,
    play: () => viewer.play(),
    pause: () => viewer.pause(),
    setFrame: (frame) => { viewer.pause(); viewer.setFrame(frame); },
    setTime: (time) => { viewer.pause(); viewer.setTime(time); },
    show: (name, on = true) => viewer.set(name, on),
    view: (name) => viewer.view(name),
  });
} catch (error) {
  const missing = error.message === "no WebGL2";
  if (!missing) window.jaxdyn.errors.push(String(error.stack || error));
  say(missing
    ? "This page draws with WebGL2, which this browser does not offer. A current Firefox, Chrome, Edge or Safari does; in some, hardware acceleration has to be switched on."
    : `The recording cannot be shown: ${error.message}`);
}
