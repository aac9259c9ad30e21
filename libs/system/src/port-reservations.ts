import { createServer, type Server } from 'node:net';

/**
 * Ports of this machine that are promised to something that does not listen there yet. Whoever looks for a free port by listening
 * for a moment finds such a port free; a reservation keeps it from all other processes that reserve first.
 *
 * On Linux a reservation is the name of an abstract socket: names, like ports, exist once per network namespace, and a process that
 * is killed leaves none behind. Other systems have no such names; there a reservation binds only its own holder.
 * @see unix(7), "Abstract sockets"
 */
export class PortReservations {
  private readonly held = new Map<string, Server | undefined>();

  /**
   * Reserves a port. Whether something listens there is not looked at.
   * @returns False when somebody holds it, this holder included. Where the system refuses names for another reason, true: a start
   *   must not fail for want of a precaution.
   */
  async take(port: number, protocol: 'tcp' | 'udp'): Promise<boolean> {
    const key = keyOf(port, protocol);
    if (this.held.has(key)) return false;
    this.held.set(key, undefined);
    if (process.platform !== 'linux') return true;
    const server = createServer((connection) => connection.destroy()).unref();
    const code = await listen(server, `\0cloudless/port/${key}`);
    if (code === 'EADDRINUSE') {
      this.held.delete(key);
      return false;
    }
    if (code === undefined && this.held.has(key)) this.held.set(key, server);
    else server.close(); // released while it was being reserved
    return true;
  }

  /** Gives a port back; without effect for one that this holder does not have. */
  release(port: number, protocol: 'tcp' | 'udp'): void {
    const key = keyOf(port, protocol);
    this.held.get(key)?.close();
    this.held.delete(key);
  }

  releaseAll(): void {
    for (const server of this.held.values()) server?.close();
    this.held.clear();
  }
}

function keyOf(port: number, protocol: 'tcp' | 'udp'): string {
  return `${port}/${protocol}`;
}

/** @returns The code of what went wrong; undefined when the name is ours. */
function listen(server: Server, path: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    server.once('error', ({ code = 'unknown' }: NodeJS.ErrnoException) => resolve(code));
    server.listen({ path }, () => resolve(undefined));
  });
}
