import type { Server } from 'node:net';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import { requireLoopback } from '@cloudless/identity';

/** Address on which a server listens. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
  /** `http://host:port`, without a slash at the end. */
  readonly url: string;
}

/**
 * Starts to accept connections on a loopback address.
 * @param port - 0 to 65535; 0 lets the system choose.
 * @param portOption - The command-line option that error messages name, such as `--port`.
 * @throws CloudlessError `precondition` when the host is not loopback, `invalid` when the port is
 *   out of range, `unavailable` when the port is in use, `denied` when the system refuses the port,
 *   `precondition` when this machine does not have the address.
 */
export async function listenOnLoopback(
  server: Server,
  host: string,
  port: number,
  portOption: string,
): Promise<ListenAddress> {
  const bindHost = requireLoopback(host);
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new InvalidInputError([
      {
        field: 'port',
        message: `${port} is not a port number; use 0 to 65535, where 0 lets the system choose`,
      },
    ]);
  }
  await new Promise<void>((resolve, reject) => {
    const onError = (reason: Error): void =>
      reject(toListenError(reason, bindHost, port, portOption));
    server.once('error', onError);
    server.listen({ host: bindHost, port }, () => {
      server.off('error', onError);
      resolve();
    });
  });
  const bound = server.address();
  if (bound === null || typeof bound === 'string')
    throw new CloudlessError('internal', 'a TCP server has no address');
  const urlHost = bindHost.includes(':') ? `[${bindHost}]` : bindHost;
  return { host: bindHost, port: bound.port, url: `http://${urlHost}:${bound.port}` };
}

function toListenError(
  reason: Error,
  host: string,
  port: number,
  portOption: string,
): CloudlessError {
  const place = `port ${port} on ${host}`;
  switch ('code' in reason ? reason.code : undefined) {
    case 'EADDRINUSE':
      return new CloudlessError(
        'unavailable',
        `${place} is in use; stop the program that uses it or choose another port with ${portOption}`,
        {
          cause: reason,
        },
      );
    case 'EACCES':
      return new CloudlessError(
        'denied',
        `${place} may not be used by this user; choose a port above 1023 with ${portOption}`,
        {
          cause: reason,
        },
      );
    case 'EADDRNOTAVAIL':
      return new CloudlessError(
        'precondition',
        `${host} is not an address of this machine; try 127.0.0.1`,
        { cause: reason },
      );
    default:
      return new CloudlessError('unavailable', `cannot listen on ${place}`, { cause: reason });
  }
}
