import dgram from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import { isLoopbackAddress } from '@cloudless/identity';
import type { MeshAddressSource } from '@cloudless/mesh';
import type { ProxySettings } from './control-messages.js';

/** Only peers on the same link, with the name of their own interface, reach such an address. */
const LINK_LOCAL = /^fe[89ab]/i;

export interface LocalMeshAddressOptions {
  /** Port at which the proxy listens. */
  readonly port: number;
  /** Current base addresses of coordinators. */
  readonly coordinators: () => readonly string[];
  /** Returns the addresses of a host, an address literal or a name. Default: the system resolver. */
  readonly resolve?: (host: string) => Promise<readonly string[]>;
  /** Returns the local address of packets to an address. Default: {@link findSourceAddress}. */
  readonly findSource?: (address: string) => Promise<string>;
  /** Lists all addresses of this machine. Default: those of its network interfaces. */
  readonly listAddresses?: () => readonly string[];
}

/**
 * The address with which this machine reaches its coordinators, where other nodes reach this node as
 * well in most networks. The first coordinator that has an address and a route decides: through
 * loopback, no other machine is known to reach this one.
 */
export class LocalMeshAddress implements MeshAddressSource {
  constructor(private readonly options: LocalMeshAddressOptions) {}

  find = async (): Promise<{ readonly host: string; readonly port: number } | undefined> => {
    const { coordinators, port, resolve = resolveHost } = this.options;
    const { findSource = findSourceAddress } = this.options;
    const failures: string[] = [];
    for (const coordinator of coordinators()) {
      const { hostname } = new URL(coordinator);
      try {
        for (const address of await resolve(hostname.replace(/^\[(.*)\]$/, '$1'))) {
          try {
            const host = await findSource(address);
            if (isLoopbackAddress(host)) return undefined;
            if (!LINK_LOCAL.test(host)) return { host, port };
            failures.push(`${host}, the way to ${address}, is a link-local address`);
          } catch (reason) {
            failures.push(errorMessageOf(reason));
          }
        }
      } catch (reason) {
        failures.push(errorMessageOf(reason));
      }
    }
    throw new CloudlessError(
      'unavailable',
      `this machine has no address for connections to its coordinators (${failures.join('; ')})`,
    );
  };

  has = (address: string): boolean => {
    try {
      return (this.options.listAddresses ?? listAllAddresses)().includes(address);
    } catch {
      return true;
    }
  };
}

/**
 * Returns the source of the address for the default listener; undefined: the proxy has no default
 * listener.
 */
export function createMeshAddressSource(
  { defaultMeshPort: port }: Pick<ProxySettings, 'defaultMeshPort'>,
  coordinators: () => readonly string[],
): MeshAddressSource | undefined {
  return port === undefined ? undefined : new LocalMeshAddress({ port, coordinators });
}

async function resolveHost(host: string): Promise<readonly string[]> {
  const found = await lookup(host, { all: true });
  return found.map(({ address }) => address);
}

function listAllAddresses(): readonly string[] {
  return Object.values(networkInterfaces()).flatMap((each = []) =>
    each.map(({ address }) => address),
  );
}

/**
 * Returns the local address of packets to an address, by the routes of this machine. Sends nothing.
 * @throws Error of the system when there is no route.
 */
export function findSourceAddress(address: string): Promise<string> {
  const socket = dgram.createSocket(isIPv6(address) ? 'udp6' : 'udp4');
  return new Promise<string>((resolve, reject) => {
    socket.once('error', reject);
    socket.once('connect', () => resolve(socket.address().address));
    // Any port: `connect` of a datagram socket only chooses the route.
    socket.connect(9, address);
  }).finally(() => socket.close());
}
