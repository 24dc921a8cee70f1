// Curves over time on a 2D canvas: drawn once into a picture, over which only the cursor moves.

// Round numbers that divide a range into about `count` parts.
function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-6); k * step <= high + 1e-6 * step; k++) found.push(k * step);
  return { values: found, digits: clamp(-Math.floor(Math.log10(step) + 1e-6), 0, 6) };
}

class Plot {
  // times: (T,); runs: one array (T x width) per run; curves: [{column, colour, joint}].
  constructor(canvas, times, runs, width, curves, seek) {
    Object.assign(this, { canvas, times, runs, width, curves });
    this.picture = document.createElement("canvas");
    let held = false;
    const point = (event) => {
      const box = canvas.getBoundingClientRect(), { left, right } = this.margins;
      const along = (event.clientX - box.left - left) / Math.max(box.width - left - right, 1);
      seek(times[0] + clamp(along, 0, 1) * (times[times.length - 1] - times[0]));
    };
    canvas.addEventListener("pointerdown", (event) => { held = true; canvas.setPointerCapture(event.pointerId); point(event); });
    canvas.addEventListener("pointermove", (event) => { if (held) point(event); });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { held = false; });
  }

  get margins() { return { left: 44, right: 8, top: 6, bottom: 20 }; }

  // Draw the curves: those of the chosen run, those of the others faintly behind it.
  paint({ run, others, hidden, highlighted, style }) {
    const box = this.canvas.getBoundingClientRect(), ratio = Math.min(window.devicePixelRatio || 1, 2);
    if (!(box.width > 80 && box.height > 50)) return;
    for (const canvas of [this.canvas, this.picture])
      [canvas.width, canvas.height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
    this.ratio = ratio;
    this.size = [box.width, box.height];
    this.style = style;
    const shown = this.curves.filter((curve) => !hidden.has(curve.joint));
    const drawn = others ? this.runs : [this.runs[run]];
    [this.low, this.high] = this.range(shown, drawn);

    const context = this.picture.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, ...this.size);
    this.axes(context);
    context.save();
    const { left, right, top, bottom } = this.margins;
    context.beginPath();
    context.rect(left, top - 2, box.width - left - right, box.height - top - bottom + 4);
    context.clip();
    context.lineJoin = "round";
    if (others)
      this.runs.forEach((values, other) => {
        if (other !== run) for (const curve of shown) this.line(context, values, curve, 0.18, 1);
      });
    for (const curve of shown) {
      const strong = highlighted === null || highlighted === curve.joint;
      this.line(context, this.runs[run], curve, strong ? 1 : 0.15, highlighted === curve.joint ? 2.4 : 1.5);
    }
    context.restore();
  }

  range(curves, runs) {
    let low = Infinity, high = -Infinity;
    for (const values of runs)
      for (const { column } of curves)
        for (let i = column; i < values.length; i += this.width) {
          low = Math.min(low, values[i]);
          high = Math.max(high, values[i]);
        }
    if (!(low <= high)) return [-1, 1];
    const spare = Math.max(0.06 * (high - low), 0.02 * Math.max(Math.abs(low), Math.abs(high)), 1e-6);
    return [low - spare, high + spare];
  }

  x(time) {
    const { left, right } = this.margins, [first, last] = [this.times[0], this.times[this.times.length - 1]];
    return left + ((time - first) / (last - first || 1)) * (this.size[0] - left - right);
  }

  y(value) {
    const { top, bottom } = this.margins;
    return top + ((this.high - value) / (this.high - this.low)) * (this.size[1] - top - bottom);
  }

  axes(context) {
    const { left, right, bottom } = this.margins, [width, height] = this.size;
    context.font = "11px system-ui, sans-serif";
    context.lineWidth = 1;
    const [first, last] = [this.times[0], this.times[this.times.length - 1]];
    const vertical = ticks(this.low, this.high, Math.max(2, height / 34));
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const value of vertical.values) {
      const y = Math.round(this.y(value)) + 0.5;
      context.strokeStyle = this.style.line;
      context.beginPath();
      context.moveTo(left, y);
      context.lineTo(width - right, y);
      context.stroke();
      context.fillStyle = this.style.faint;
      context.fillText(value.toFixed(vertical.digits).replace("-", "\u2212"), left - 7, y);
    }
    if (!(last > first)) return;
    const horizontal = ticks(first, last, Math.max(2, width / 80));
    context.textBaseline = "alphabetic";
    horizontal.values.forEach((value, i) => {
      const x = this.x(value);
      context.textAlign = x > width - right - 14 ? "right" : "center";
      const unit = i === horizontal.values.length - 1 ? " s" : "";
      context.fillText(value.toFixed(horizontal.digits) + unit, x, height - bottom + 15);
    });
  }

  line(context, values, curve, opacity, width) {
    context.globalAlpha = opacity;
    context.strokeStyle = curve.colour;
    context.lineWidth = width;
    context.beginPath();
    for (let i = 0; i < this.times.length; i++) context.lineTo(this.x(this.times[i]), this.y(values[i * this.width + curve.column]));
    context.stroke();
    context.globalAlpha = 1;
  }

  // Show the picture with the cursor at a time.
  cursor(time) {
    if (!this.size) return;
    const context = this.canvas.getContext("2d"), { top, bottom } = this.margins;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.picture, 0, 0);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.strokeStyle = this.style.accent;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(this.x(time), top);
    context.lineTo(this.x(time), this.size[1] - bottom);
    context.stroke();
  }
}
