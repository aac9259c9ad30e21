import type { Server } from 'node:net';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import { isLoopbackHost, requireLoopback } from '@cloudless/identity';

/**
 * Connections that the system accepts and holds until the event loop takes them; the system lowers
 * the number to `net.core.somaxconn`. After a restart all agents connect while the coordinator still
 * loads its state. A client beyond this number appears connected but is not: the system drops its
 * data, and the client sends it again only after 1, 2, 4, up to 32 s.
 */
const MAX_UNACCEPTED_CONNECTIONS = 65_535;

/** Address on which a server listens. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
  /** `http://host:port` or `https://host:port`, without a slash at the end. */
  readonly url: string;
}

/** Where a server listens. */
export interface ListenOptions {
  /** Address or host name; `localhost` is 127.0.0.1. Without TLS: an address of loopback. */
  readonly host: string;
  /** 0 to 65535; 0 lets the system choose. */
  readonly port: number;
  /** The command-line option that error messages name, such as `--port`. */
  readonly portOption: string;
  /** True when the server speaks TLS: clients on other machines can then be told apart. */
  readonly tls: boolean;
}

/**
 * Starts to accept connections. Without TLS, only on a loopback address.
 * @throws CloudlessError `precondition` when the host is not loopback and `tls` is false, `invalid`
 *   when the host is empty or the port is out of range, `unavailable` when the port is in use,
 *   `denied` when the system refuses the port, `precondition` when this machine does not have the
 *   address.
 */
export async function listen(
  server: Server,
  { host, port, portOption, tls }: ListenOptions,
): Promise<ListenAddress> {
  const bindHost = tls && !isLoopbackHost(host) ? requireHost(host) : requireLoopback(host);
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
    server.listen({ host: bindHost, port, backlog: MAX_UNACCEPTED_CONNECTIONS }, () => {
      server.off('error', onError);
      resolve();
    });
  });
  const bound = server.address();
  if (bound === null || typeof bound === 'string')
    throw new CloudlessError('internal', 'a TCP server has no address');
  const urlHost = bindHost.includes(':') ? `[${bindHost}]` : bindHost;
  return {
    host: bindHost,
    port: bound.port,
    url: `${tls ? 'https' : 'http'}://${urlHost}:${bound.port}`,
  };
}

/** Returns the address to bind, without the brackets of an IPv6 address in a URL. */
function requireHost(host: string): string {
  if (host !== '') return host.replace(/^\[(.*)\]$/, '$1');
  throw new InvalidInputError([
    { field: 'host', message: 'the host is empty; use 0.0.0.0 or :: for every address' },
  ]);
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
