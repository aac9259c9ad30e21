import net from 'node:net';

/**
 * A TCP server for one address that keeps half-open connections and begins each connection paused.
 * Before {@link TcpServer.start} the server does not listen, knows its address nevertheless, and
 * serves the connections that the owner of another socket emits.
 */
export class TcpServer extends net.Server {
  /** @param host - IP address, perhaps in brackets, or a name. */
  constructor(
    readonly host: string,
    readonly port: number,
  ) {
    super({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true });
  }

  override address(): net.AddressInfo | string | null {
    const address = withoutBrackets(this.host);
    const family = net.isIPv6(address) ? 'IPv6' : 'IPv4';
    return super.address() ?? { address, family, port: this.port };
  }

  /**
   * Listens. Resolves also when the server is closed before it listens.
   * @throws as `net.Server` with the code EADDRNOTAVAIL, EADDRINUSE or EACCES. The caller may try
   *   again.
   */
  start(): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (): void => {
        this.off('error', onError).off('listening', onListening).off('close', onClose);
      };
      const onError = (reason: Error): void => (end(), reject(reason));
      const onListening = (): void => (end(), resolve());
      const onClose = (): void => {
        end();
        // The name of a host may be resolved only now.
        this.once('listening', () => this.close());
        resolve();
      };
      this.on('error', onError).on('listening', onListening).on('close', onClose);
      this.listen({ host: withoutBrackets(this.host), port: this.port, backlog: 4_096 });
    });
  }
}

/**
 * Returns true when a server at `host` accepts connections to `address`, a local IP address. A name
 * is taken for one of this address.
 */
export function acceptsAt(host: string, address: string): boolean {
  if (isSameAddress(host, '::') || net.isIP(withoutBrackets(host)) === 0) return true;
  if (isWildcard(host)) return net.isIPv4(toPlain(address));
  return isSameAddress(host, address);
}

/** Returns true when `host` is an IP address, perhaps in brackets, and equal to another one. */
export function isSameAddress(host: string, address: string): boolean {
  const own = withoutBrackets(host);
  return net.isIP(own) !== 0 && toPlain(own) === toPlain(address);
}

/** Returns true for a host that stands for every address. */
export function isWildcard(host: string): boolean {
  return isSameAddress(host, '0.0.0.0') || isSameAddress(host, '::');
}

/** Settings have brackets around IPv6. */
function withoutBrackets(host: string): string {
  return host.replace(/^\[(.*)\]$/, '$1');
}

/** One text for all texts of an IP address. */
function toPlain(text: string): string {
  const address = text.replace(/^::ffff:(?=[\d.]+$)/i, '');
  return net.isIPv6(address) ? new net.SocketAddress({ address, family: 'ipv6' }).address : address;
}
