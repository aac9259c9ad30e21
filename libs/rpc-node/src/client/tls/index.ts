/**
 * TLS connections to coordinators. Needs little memory, so that worker threads can load this entry
 * point: neither protobuf nor Connect.
 */
export type { ClientTls } from './client-tls.js';
export { detectTls } from './detect-tls.js';
export { fetchServerRoot } from './fetch-server-root.js';
export type { ServerRoot } from './fetch-server-root.js';
export {
  connectHttp2Session,
  connectTls,
  destroyInNextTurn,
  openHttp2Session,
} from './http2-session.js';
export { openTlsSocket } from './open-tls-socket.js';
