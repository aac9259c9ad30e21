import { rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';

/**
 * Proxy in front of the socket of a container runtime. When a test cuts the proxy off, the clients
 * of the proxy cannot reach the runtime, and all other clients still can.
 */
export class CutOffProxy {
  private readonly sockets = new Set<Socket>();
  private server: Server | undefined;

  constructor(
    /** Path of the socket of this proxy. */
    readonly socketPath: string,
    /** Path of the socket of the container runtime. */
    private readonly targetPath: string,
  ) {}

  /** Accepts connections, also again after {@link CutOffProxy.cut}. */
  async listen(): Promise<void> {
    const server = (this.server = createServer((near) => {
      const far = connect(this.targetPath);
      for (const socket of [near, far]) {
        this.sockets.add(socket);
        socket.on('error', () => undefined);
        socket.once('close', () => {
          this.sockets.delete(socket);
          near.destroy();
          far.destroy();
        });
      }
      near.pipe(far).pipe(near);
    }));
    await new Promise<void>((resolve) => server.listen(this.socketPath, resolve));
  }

  /** Closes all connections and refuses new ones until `listen` is called again. */
  async cut(): Promise<void> {
    const closed = new Promise<void>((resolve) =>
      this.server === undefined ? resolve() : this.server.close(() => resolve()),
    );
    for (const socket of this.sockets) socket.destroy();
    await closed;
    this.server = undefined;
    rmSync(this.socketPath, { force: true });
  }
}
