import { Http2SessionManager, createGrpcTransport } from '@connectrpc/connect-node';
import { createSecretsClient, type SecretsClient } from '@cloudless/api';
import { RunningProgram, findBundle } from '@cloudless/e2e';

/** Where a coordinator has its state and its key-encryption key. */
export interface CoordinatorFiles {
  readonly dataDir: string;
  readonly keyFile: string;
}

/** What a coordinator logs about a step of a rotation. */
export interface LoggedStep {
  readonly step: 'activate' | 'reEncrypt' | 'deleteKeys';
  /** True: the step is committed. False: it is about to be. */
  readonly isCommitted: boolean;
  /** Number of versions that the step encrypts again. */
  readonly versions: number;
}

/** A coordinator without TLS, as a process of its own. */
export class SecretsCoordinator {
  private sessions: Http2SessionManager | undefined;

  private constructor(private readonly program: RunningProgram) {}

  /** Starts a coordinator that logs each step of a rotation. The caller ends it. */
  static start({ dataDir, keyFile }: CoordinatorFiles): SecretsCoordinator {
    return new SecretsCoordinator(
      RunningProgram.start(process.execPath, [
        ...[findBundle('coordinator'), '--tls', 'off', '--port', '0', '--ops-port', '0'],
        ...['--data-dir', dataDir, '--secrets-key-file', keyFile, '--log-level', 'debug'],
      ]),
    );
  }

  get pid(): number {
    return this.program.pid;
  }

  /** Waits until the coordinator serves. */
  async connect(): Promise<SecretsClient> {
    const ready = await this.program.waitForLog('coordinator ready');
    const baseUrl = String(ready['url']);
    this.sessions = new Http2SessionManager(baseUrl);
    return createSecretsClient(createGrpcTransport({ baseUrl, sessionManager: this.sessions }));
  }

  /** Waits for the first step that satisfies a condition, which sees each step once, in order. */
  async waitForStep(fits: (step: LoggedStep) => boolean): Promise<void> {
    await this.program.waitForLine((line) => {
      const step = parseStep(line);
      return step !== undefined && fits(step);
    });
  }

  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    await this.program.kill(signal);
    this.sessions?.abort();
  }
}

function parseStep(line: string): LoggedStep | undefined {
  const isCommitted = line.includes('"message":"master keys advanced"');
  if (!isCommitted && !line.includes('"message":"master key step planned"')) return undefined;
  const { step, versions = 0 } = JSON.parse(line) as Omit<LoggedStep, 'isCommitted'>;
  return { step, versions, isCommitted };
}
