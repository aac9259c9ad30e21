import { closeSync, constants, openSync } from 'node:fs';
import net from 'node:net';
import { drainDescriptor } from './drain-descriptor.js';

/** The reading end of a named pipe. */
export class PipeReader {
  private readonly fd: number;
  private socket: net.Socket | undefined;
  private isClosed = false;
  /** Bytes read so far. */
  bytesRead = 0;

  /**
   * Opens the pipe, without waiting for a writer.
   * @param onData - Called with each chunk, which is reused after the call.
   * @param onEnd - Called once, when the last writer has closed the pipe.
   */
  constructor(
    file: string,
    private readonly onData: (chunk: Uint8Array) => void,
    private readonly onEnd: () => void,
  ) {
    this.fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  }

  /** Begins to read. */
  start(): void {
    const socket = new net.Socket({ fd: this.fd, readable: true, writable: false });
    this.socket = socket;
    socket.on('data', (chunk: Buffer) => this.onChunk(chunk));
    socket.on('error', () => this.onEnded());
    socket.on('end', () => this.onEnded());
  }

  /** Stops reading. Unread data stays in the pipe and blocks the writers when the pipe is full. */
  pause(): void {
    this.socket?.pause();
  }

  resume(): void {
    this.socket?.resume();
  }

  get isPaused(): boolean {
    return this.socket?.isPaused() ?? false;
  }

  /**
   * Reads the available bytes, then closes the pipe, even if another process still holds the other
   * end.
   */
  finish(): void {
    if (this.isClosed) return;
    drainDescriptor(this.fd, (chunk) => this.onChunk(chunk));
    this.onEnded();
  }

  /** Closes the pipe. Unread data stays in it as long as another process holds it open. */
  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    if (this.socket === undefined) closeSync(this.fd);
    else this.socket.destroy();
  }

  private onChunk(chunk: Uint8Array): void {
    this.bytesRead += chunk.length;
    this.onData(chunk);
  }

  private onEnded(): void {
    if (this.isClosed) return;
    this.close();
    this.onEnd();
  }
}
