import { ServerResponse, type IncomingMessage, type Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** Returns a response for a request to switch protocols, for when the request is refused. */
export function toUpgradeResponse(req: IncomingMessage, socket: Duplex): ServerResponse {
  const res = new ServerResponse(req);
  res.shouldKeepAlive = false;
  res.assignSocket(socket as Socket);
  res.once('finish', () => socket.end());
  // The client is not read unless the connection becomes a tunnel.
  socket.once('close', () => res.emit('close'));
  return res;
}

/**
 * Serves a request without the switch of protocols that it asks for, as RFC 9110, section 7.8,
 * allows: the connection begins again with the same request without its Upgrade header.
 */
export function restartWithoutUpgrade(
  server: Server,
  req: IncomingMessage,
  socket: Duplex,
  head: Buffer,
): void {
  const lines = [`${req.method ?? 'GET'} ${req.url ?? '/'} HTTP/${req.httpVersion}`];
  for (let i = 0; i + 1 < req.rawHeaders.length; i += 2) {
    const name = req.rawHeaders[i] ?? '';
    if (!/^(?:upgrade|http2-settings|connection)$/i.test(name))
      lines.push(`${name}: ${req.rawHeaders[i + 1] ?? ''}`);
  }
  const text = `${lines.join('\r\n')}\r\n\r\n`;
  socket.unshift(Buffer.concat([Buffer.from(text, 'latin1'), head]));
  server.emit('connection', socket);
  socket.resume();
}
