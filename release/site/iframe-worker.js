// The search runs in a worker, which a page opened as a file may not start. A hidden frame does
// the worker's work there; messages are copied and come later, as between a page and a worker.
// (The builder would load such a script from another server.)
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inside = this.frame.contentWindow;
      this.inside.postMessage = (data) => this.later(this, data);
      this.loaded = new Promise((done) => {
        const script = this.inside.document.createElement("script");
        script.src = new URL(url, document.baseURI);
        script.onload = done;
        script.onerror = () => this.onerror?.(new ErrorEvent("error"));
        this.inside.document.body.append(script);
      });
    }
    later(target, message) {
      const data = structuredClone(message);
      setTimeout(() => target.onmessage?.(new MessageEvent("message", { data })));
    }
    postMessage(message) {
      const data = structuredClone(message);
      this.loaded.then(() => this.later(this.inside, data));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
