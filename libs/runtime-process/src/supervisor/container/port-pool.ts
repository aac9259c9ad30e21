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

  /** Reserves the ports of an adopted container. */
  async reserve(ports: readonly number[]): Promise<void> {
    for (const port of ports) {
      this.allocated.add(port);
      for (const protocol of PROTOCOLS) await this.reservations.reserve(port, protocol);
    }
  }

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
    const found: number[] = [];
    try {
      for (const { protocol } of requests) found.push(await this.allocateOne(protocol, settings));
    } catch (reason) {
      this.release(found);
      throw reason;
    }
    return found;
  }

  /** Searches in a circle, so that a port that was just released is not reused at once. */
  private async allocateOne(
    protocol: PortRequest['protocol'],
    { portRange: { from, to }, address }: SupervisorSettings,
  ): Promise<number> {
    const count = to - from + 1;
    for (let tried = 0; tried < count; tried += 1) {
      const wanted = this.next ?? from + Math.floor(this.random.next() * count);
      const port = wanted < from || wanted > to ? from : wanted;
      this.next = port + 1;
      if (this.allocated.has(port)) continue;
      // Mark it before the check, which takes time: another start must not find it free.
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
