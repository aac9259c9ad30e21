import { createServer, type Server } from 'node:net';
import { listen, type ListenOptions } from '@cloudless/rpc-node/server';

/**
 * Ports on which this process listens before it serves. Connections are closed at once, so that
 * clients go to another coordinator.
 */
export class HeldPorts {
  private readonly servers: Server[] = [];

  /**
   * Listens on a port.
   * @throws the errors of `listen`, such as that of a port in use.
   */
  async hold(options: ListenOptions): Promise<void> {
    const server = createServer((socket) => socket.destroy());
    await listen(server, options);
    this.servers.push(server);
  }

  /** Stops to listen, so that the servers of this process can take the ports. */
  async release(): Promise<void> {
    const servers = this.servers.splice(0);
    await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  }
}
