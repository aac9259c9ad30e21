import net from 'node:net';
import type { TcpConnect } from '@cloudless/agent-core';

/** Opens a TCP connection and closes it at once. */
export const tcpConnect: TcpConnect = (ip, port, timeoutMs) =>
  new Promise((resolve) => {
    const socket = net.connect({ host: ip, port });
    const end = (accepted: boolean): void => {
      socket.destroy();
      resolve(accepted);
    };
    socket.setTimeout(timeoutMs, () => end(false));
    socket.once('connect', () => end(true)).once('error', () => end(false));
  });
