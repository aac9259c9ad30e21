/**
 * A program that destroys an HTTP/2 session as the reaction to a stream which the GOAWAY of the
 * server has refused, while another stream is open. It ends when the session has ended.
 */
import { once } from 'node:events';
import { createServer, type ServerHttp2Session } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { destroySoon, openHttp2Session } from '../client/tls/index.js';

const server = createServer().listen(0, '127.0.0.1');
await once(server, 'listening');
const opened = once(server, 'session');
const { port } = server.address() as AddressInfo;
const session = openHttp2Session(`http://127.0.0.1:${port}`, undefined);
await once(session, 'remoteSettings');
const [atServer] = (await opened) as [ServerHttp2Session];

const running = session.request({ ':method': 'POST', ':path': '/running' });
running.on('error', () => undefined);
await once(server, 'stream');
atServer.close();
const refused = session.request({ ':method': 'POST', ':path': '/refused' });
const ended = once(session, 'close');
refused.once('error', ({ message }: Error) => {
  process.stdout.write(`${message}\n`);
  destroySoon(session);
});
await ended;
server.close();
