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
   * @param onData - Called with each chunk. The chunk is valid only during the call.
   * @param onEnd - Called once, when the last writer has closed the pipe or after {@link finish}.
   */
  constructor(
    file: string,
    private readonly onData: (chunk: Uint8Array) => void,
    private readonly onEnd: () => void,
  ) {
    this.fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  }

  /** Begins to read. Call it once. */
  start(): void {
    const socket = new net.Socket({ fd: this.fd, readable: true, writable: false });
    this.socket = socket;
    socket.on('data', (chunk: Buffer) => this.onChunk(chunk));
    socket.on('error', () => this.onEnded());
    socket.on('end', () => this.onEnded());
  }

  /** Stops reading. Unread bytes stay in the pipe. A full pipe blocks the writers. */
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
   * Reads the available bytes, then closes the pipe and calls `onEnd`, even if another process
   * still has the pipe open for writing.
   */
  finish(): void {
    if (this.isClosed) return;
    drainDescriptor(this.fd, (chunk) => this.onChunk(chunk));
    this.onEnded();
  }

  /**
   * Closes the pipe without a call of `onEnd`. Unread bytes stay in the pipe while another process
   * has the pipe open.
   */
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
