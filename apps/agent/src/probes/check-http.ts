import { request as httpRequest } from 'node:http';
import type { ProbeClients } from '@cloudless/agent-core';
import { VERSION } from '@cloudless/app-kit';
import { toConnectionError } from './connection-error.js';

/** Bytes of the body after which the check closes the connection: only the status matters. */
const MAX_BODY_BYTES = 64 * 1024;
/** Limit of the header of a response, as in Node. */
const MAX_HEADER_BYTES = 16 * 1024;

/** Sends one GET request over a new connection. Resolves with the status code. */
export const checkHttp: ProbeClients['http'] = ({ ip, port, path, headers }, signal) =>
  new Promise((resolve, reject) => {
    const request = httpRequest({
      ...{ host: ip, port, path, signal, agent: false, maxHeaderSize: MAX_HEADER_BYTES },
      headers: {
        accept: '*/*',
        'user-agent': `cloudless-probe/${VERSION}`,
        ...withLowerCaseNames(headers),
      },
    });
    const fail = (cause: unknown): void => reject(toConnectionError(cause));
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

/** Converts names to lower case, so that user headers replace the defaults of the same name. */
function withLowerCaseNames(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
}
