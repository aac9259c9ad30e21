import { createSocket } from 'node:dgram';
import net from 'node:net';
import { CloudlessError, type Random } from '@cloudless/base';
import type { PortRequest } from '@cloudless/runtime';
import { PortReservations } from '@cloudless/app-kit';
import type { SupervisorSettings } from '../../wire/messages.js';

const PROTOCOLS = ['tcp', 'udp'] as const;

/**
 * Assigns free ports to containers. A port number belongs to at most one running container,
 * whatever its protocol. A reservation keeps the port from other supervisors on this machine until
 * the container has ended, because the container may listen late or never.
 */
export class PortPool {
  private readonly allocated = new Set<number>();
  private next: number | undefined;

  constructor(
    private readonly random: Random,
    private readonly reservations = new PortReservations(),
  ) {}

  /** Reserves the ports of an adopted container, for every protocol. */
  async reserve(ports: readonly number[]): Promise<void> {
    for (const port of ports) {
      this.allocated.add(port);
      for (const protocol of PROTOCOLS) await this.reservations.reserve(port, protocol);
    }
  }

  /** Releases ports, so that any supervisor of this machine can assign them. */
  release(ports: readonly number[]): void {
    for (const port of ports) {
      this.allocated.delete(port);
      for (const protocol of PROTOCOLS) this.reservations.release(port, protocol);
    }
  }

  /**
   * Assigns one free port to each request.
   * @throws kind `exhausted` when the range has too few free ports; no port is assigned then.
   */
  async allocate(
    requests: readonly PortRequest[],
    settings: SupervisorSettings,
  ): Promise<readonly number[]> {
    const allocated: number[] = [];
    try {
      for (const { protocol } of requests)
        allocated.push(await this.allocateOne(protocol, settings));
    } catch (reason) {
      this.release(allocated);
      throw reason;
    }
    return allocated;
  }

  /** Searches the range in a circle, so that a released port is not assigned again at once. */
  private async allocateOne(
    protocol: PortRequest['protocol'],
    { portRange: { from, to }, address }: SupervisorSettings,
  ): Promise<number> {
    const count = to - from + 1;
    for (let tried = 0; tried < count; tried += 1) {
      const candidate = this.next ?? from + Math.floor(this.random.next() * count);
      const port = candidate < from || candidate > to ? from : candidate;
      this.next = port + 1;
      if (this.allocated.has(port)) continue;
      // Mark the port before the asynchronous checks, so that a concurrent start skips it.
      this.allocated.add(port);
      if (!(await this.reservations.reserve(port, protocol))) this.allocated.delete(port);
      else if (await (protocol === 'tcp' ? isFreeTcp(port, address) : isFreeUdp(port, address)))
        return port;
      else this.release([port]);
    }
    throw new CloudlessError('exhausted', `no free port in the range ${from} to ${to}`);
  }
}

function isFreeTcp(port: number, host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const server = net.createServer();
    server.once('error', () => resolve(false));
    server.listen({ port, host, exclusive: true }, () => server.close(() => resolve(true)));
  });
}

function isFreeUdp(port: number, address: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createSocket({ type: net.isIPv6(address) ? 'udp6' : 'udp4', reuseAddr: false });
    socket.once('error', () => {
      socket.close();
      resolve(false);
    });
    socket.bind({ port, address, exclusive: true }, () => socket.close(() => resolve(true)));
  });
}
