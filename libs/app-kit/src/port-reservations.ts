import { createServer, type Server } from 'node:net';
import { errorCodeOf } from '@cloudless/base';

/** A reserved port. `server` is set once the name of its socket is bound. */
interface Reservation {
  server: Server | undefined;
}

/**
 * Reserves ports of this machine for processes that do not listen yet. A search for a free port
 * would find such a port free. A reservation keeps the port from all other processes that reserve
 * ports before they use them.
 *
 * On Linux a reservation is the name of an abstract socket: names are unique in a network
 * namespace, like ports, and the kernel removes them when the process ends. Other systems have no
 * such names; there, a reservation is visible only within its own holder.
 * @see unix(7), "Abstract sockets"
 */
export class PortReservations {
  private readonly reservations = new Map<string, Reservation>();

  /**
   * Reserves a port, whether or not a process listens on it.
   * @returns False when any holder has the port, including this one. True also when the system
   *   refuses the name for another reason: a reservation is a precaution, and a start must not fail
   *   because of it.
   */
  async reserve(port: number, protocol: 'tcp' | 'udp'): Promise<boolean> {
    const key = toKey(port, protocol);
    if (this.reservations.has(key)) return false;
    const reservation: Reservation = { server: undefined };
    this.reservations.set(key, reservation);
    if (process.platform !== 'linux') return true;
    const server = createServer((connection) => connection.destroy()).unref();
    const code = await listen(server, `\0cloudless/port/${key}`);
    // False when the port was released, or released and reserved again, during the wait.
    const isHeld = this.reservations.get(key) === reservation;
    if (code === 'EADDRINUSE') {
      if (isHeld) this.reservations.delete(key);
      return false;
    }
    if (isHeld && code === undefined) reservation.server = server;
    else server.close();
    return true;
  }

  /** Releases a port. Does nothing for a port that this holder has not reserved. */
  release(port: number, protocol: 'tcp' | 'udp'): void {
    const key = toKey(port, protocol);
    this.reservations.get(key)?.server?.close();
    this.reservations.delete(key);
  }

  /** Releases all ports of this holder. */
  releaseAll(): void {
    for (const { server } of this.reservations.values()) server?.close();
    this.reservations.clear();
  }
}

function toKey(port: number, protocol: 'tcp' | 'udp'): string {
  return `${port}/${protocol}`;
}

/**
 * Binds a server to the name of a socket.
 * @returns The error code; undefined when the name is bound.
 */
function listen(server: Server, path: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    server.once('error', (reason) => resolve(errorCodeOf(reason) ?? 'unknown'));
    server.listen({ path }, () => resolve(undefined));
  });
}
