import net from 'node:net';
import type { TcpConnect } from '@cloudless/agent-core';

/**
 * Opens a TCP connection and ends it in good order: what the server says is read and its end is
 * waited for. A reset would be an error in the server, and end one that does not expect any.
 */
export const tcpConnect: TcpConnect = (ip, port, timeoutMs) =>
  new Promise((resolve) => {
    const socket = net.connect({ host: ip, port });
    socket.setTimeout(timeoutMs, () => {
      socket.destroy();
      resolve(false); // nothing, when it had been accepted
    });
    socket.once('connect', () => {
      resolve(true);
      socket.resume();
      socket.end();
    });
    socket.on('error', () => resolve(false));
  });
