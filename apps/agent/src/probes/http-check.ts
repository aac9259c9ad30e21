import { request as httpRequest } from 'node:http';
import type { ProbeClients } from '@cloudless/agent-core';
import { VERSION } from '../version.js';
import { connectionFailure } from './connection-failure.js';

/** A longer body is not read to its end: the status has been told. */
const MAX_BODY_BYTES = 64 * 1024;
const MAX_HEADER_BYTES = 16 * 1024;

/** One GET over a connection of its own, by the status of which a container is judged. */
export const httpCheck: ProbeClients['http'] = ({ ip, port, path, headers }, signal) =>
  new Promise((resolve, reject) => {
    const request = httpRequest({
      ...{ host: ip, port, path, signal, agent: false, maxHeaderSize: MAX_HEADER_BYTES },
      headers: {
        accept: '*/*',
        'user-agent': `cloudless-probe/${VERSION}`,
        ...lowerCased(headers),
      },
    });
    const fail = (cause: unknown): void => reject(connectionFailure(cause));
    request.on('error', fail);
    request.on('upgrade', ({ statusCode = 0 }, socket) => {
      socket.destroy();
      resolve(statusCode);
    });
    request.on('response', (response) => {
      const { statusCode = 0 } = response;
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes <= MAX_BODY_BYTES) return;
        resolve(statusCode);
        request.destroy();
      });
      response.on('end', () => resolve(statusCode));
      response.on('error', fail);
    });
    request.end();
  });

/** So that each replaces our own of that name. */
function lowerCased(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
}
