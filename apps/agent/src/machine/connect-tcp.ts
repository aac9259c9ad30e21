import net from 'node:net';
import type { TcpConnect } from '@cloudless/agent-core';

/**
 * Opens a TCP connection and closes the connection gracefully: reads until the server closes its
 * half. A reset would be an error in the server, and could end a server that does not expect
 * resets.
 */
export const connectTcp: TcpConnect = (ip, port, timeoutMs) =>
  new Promise((resolve) => {
    const socket = net.connect({ host: ip, port });
    socket.setTimeout(timeoutMs, () => {
      socket.destroy();
      resolve(false); // no effect if the connection was accepted
    });
    socket.once('connect', () => {
      resolve(true);
      socket.resume();
      socket.end();
    });
    socket.on('error', () => resolve(false));
  });
