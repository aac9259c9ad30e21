// Sends HTTP requests to a host on port 80, with new connections and a kept connection, until SIGTERM.
// Prints `began` after the first response, and {count, failures} as JSON at the end. A failure says
// when, of which connection, how far the request came, and why.
const http = require('node:http');

const host = process.argv[2];
const failures = [];
let count = 0;
let isStopping = false;

const request = (agent) =>
  new Promise((resolve) => {
    const startMs = Date.now();
    let phase = 'connecting';
    let local = '';
    const fail = (reason) => {
      const connection = `${sent.reusedSocket ? 'reused' : 'new'} connection${local}`;
      const afterMs = Date.now() - startMs;
      failures.push(
        `${new Date().toISOString()} ${connection}, ${phase}, after ${afterMs} ms: ${reason.code ?? reason.message}`,
      );
      resolve();
    };
    const sent = http.get({ host, port: 80, agent, timeout: 5_000 }, (response) => {
      phase = 'reading the response';
      response.resume();
      response.on('error', fail).on('end', () => {
        if ((count += 1) === 1) console.log('began');
        resolve();
      });
    });
    sent.on('socket', (socket) => {
      const onConnected = () => {
        phase = 'request sent';
        local = ` from ${socket.localAddress}:${socket.localPort}`;
      };
      if (socket.connecting) socket.once('connect', onConnected);
      else onConnected();
    });
    sent.on('timeout', () => sent.destroy(new Error('timeout'))).on('error', fail);
  });

const run = async (agent) => {
  while (!isStopping) {
    await request(agent);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

process.on('SIGTERM', () => (isStopping = true));
const kept = new http.Agent({ keepAlive: true, maxSockets: 1 });
Promise.all([run(false), run(kept)]).then(() => {
  process.stdout.write(`${JSON.stringify({ count, failures })}\n`, () => process.exit(0));
});
