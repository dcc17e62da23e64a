// Search without a server: browsers refuse workers for pages from file://. There, and only there, a worker is a hidden
// frame of the same page that runs the script and passes messages on.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const base = new URL(url, document.baseURI); // the theme passes a path relative to the page
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html><body></body>";
      this.waiting = [];
      frame.onload = () => {
        const inside = frame.contentWindow;
        inside.postMessage = (data) => {
          const event = new MessageEvent("message", { data });
          this.dispatchEvent(event);
          if (this.onmessage) this.onmessage(event);
        };
        inside.importScripts = (...urls) =>
          urls.reduce(
            (before, each) =>
              before.then(
                () =>
                  new Promise((done, failed) => {
                    const script = inside.document.createElement("script");
                    script.src = new URL(each, base).href;
                    script.onload = done;
                    script.onerror = failed;
                    inside.document.body.append(script);
                  }),
              ),
            Promise.resolve(),
          );
        inside.importScripts(base).then(() => {
          this.inside = inside;
          this.waiting.splice(0).forEach((data) => this.postMessage(data));
        });
      };
      document.body ? document.body.append(frame) : addEventListener("load", () => document.body.append(frame));
      this.frame = frame;
    }
    postMessage(data) {
      if (!this.inside) return void this.waiting.push(data);
      this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
