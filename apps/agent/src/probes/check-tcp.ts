import { connect } from 'node:net';
import type { CheckClients } from '@cloudless/mesh';
import { toConnectionError } from './connection-error.js';

/** Opens a TCP connection and closes it. */
export const checkTcp: CheckClients['tcp'] = ({ ip, port }, signal) =>
  new Promise((resolve, reject) => {
    const socket = connect({ host: ip, port, signal });
    socket.once('error', (cause) => reject(toConnectionError(cause)));
    socket.once('connect', () => {
      socket.destroy();
      resolve();
    });
  });
