import { existsSync, rmSync } from 'node:fs';
import type { Clock, Log } from '@cloudless/base';
import type { LogStream } from '@cloudless/runtime';
import { LogWriter } from '../../logs/log-writer.js';
import type { SupervisorSettings } from '../../wire/messages.js';
import { layout } from './container-paths.js';
import { PipeReader } from './pipe-reader.js';

interface OutputDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly settings: Pick<SupervisorSettings, 'logFiles' | 'logFileBytes'>;
}

/** Copies the output of a container from its two named pipes into its log. */
export class ContainerOutput {
  /** Resolves when all output is in the log and the pipes are removed. */
  readonly drained: Promise<void>;
  private readonly readers: readonly PipeReader[];
  private readonly paths: readonly string[];
  private openPipes: number;
  private resolveDrained: () => void = () => undefined;

  /**
   * Opens the pipes and the log of a container; {@link start} begins to copy.
   * @param onPipeEnd - Called when the last writer has closed a pipe, which hints that the
   *   container has ended.
   */
  static open(
    containerDirectory: string,
    { clock, log, settings }: OutputDeps,
    onPipeEnd: () => void,
  ): ContainerOutput {
    const writer = new LogWriter({
      directory: layout.log(containerDirectory),
      clock,
      log,
      files: settings.logFiles,
      fileBytes: settings.logFileBytes,
    });
    return new ContainerOutput(containerDirectory, writer, onPipeEnd);
  }

  private constructor(
    containerDirectory: string,
    private readonly log: LogWriter,
    private readonly onPipeEnd: () => void,
  ) {
    this.drained = new Promise((resolve) => (this.resolveDrained = resolve));
    this.paths = (['stdout', 'stderr'] as const).map((stream) =>
      layout.pipe(containerDirectory, stream),
    );
    const createReaders = (stream: LogStream): PipeReader[] => {
      const file = layout.pipe(containerDirectory, stream);
      if (!existsSync(file)) return []; // an earlier supervisor has drained it
      return [
        new PipeReader(
          file,
          (chunk) => log.append(stream, chunk),
          () => this.onPipeClosed(),
        ),
      ];
    };
    this.readers = [...createReaders('stdout'), ...createReaders('stderr')];
    this.openPipes = this.readers.length;
  }

  /** Begins to read the pipes. Call it once. */
  start(): void {
    for (const reader of this.readers) reader.start();
  }

  /** Copies the rest of the pipes and closes the log. Call it when the container has ended. */
  finish(): void {
    for (const reader of this.readers) reader.finish();
    this.log.finish();
    for (const file of this.paths) rmSync(file, { force: true });
    this.resolveDrained();
  }

  /** True when all writers have closed both pipes. */
  get hasEnded(): boolean {
    return this.openPipes === 0;
  }

  /** Closes the pipes and the log. Unread output stays in the pipes for the next supervisor. */
  close(): void {
    for (const reader of this.readers) reader.close();
    this.log.close();
  }

  private onPipeClosed(): void {
    this.openPipes -= 1;
    this.onPipeEnd();
  }
}
