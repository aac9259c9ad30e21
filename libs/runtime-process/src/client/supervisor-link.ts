import {
  backoffDelayMs,
  CloudlessError,
  errorFields,
  sleep,
  type Clock,
  type Log,
  type Random,
  type Timer,
} from '@cloudless/base';
import { createDisconnectedError, type SupervisorConnection } from './supervisor-connection.js';

/**
 * Time after which a supervisor that accepts a connection and does not answer counts as silent,
 * milliseconds. A supervisor answers within milliseconds.
 */
export const SILENT_AFTER_MS = 5_000;
/**
 * Back-off after a failed connection to the supervisor. The first attempt after a supervisor died
 * has no delay.
 */
const RECONNECT = { firstMs: 10, maxMs: 5_000, jitter: 0.2 };

/** The parts of a {@link SupervisorConnection} that a {@link SupervisorLink} uses. */
export type LinkedConnection = Pick<SupervisorConnection, 'hello' | 'isOpen' | 'close'>;

/** Receives the progress of one attempt to connect. */
export interface AttemptListener<Connection extends LinkedConnection> {
  /** A supervisor has accepted the connection; called again after each new connection. */
  readonly onAccepted: () => void;
  /** The supervisor has sent its hello. */
  readonly onAnswered: (connection: Connection) => void;
  /** The connection has closed, or could not be opened. */
  readonly onClosed: () => void;
}

export interface SupervisorLinkOptions<Connection extends LinkedConnection> {
  /**
   * Connects to the supervisor, and starts a supervisor when none runs. Resolves when the
   * connection can be used. Rejects as soon as `signal` is aborted.
   */
  readonly connect: (
    listener: AttemptListener<Connection>,
    signal: AbortSignal,
  ) => Promise<Connection>;
  /** Called each time a connection that was answered has closed, unless the link is closed. */
  readonly onLost: () => void;
  /** Returns the id of the process that serves the directory; undefined when it is not known. */
  readonly findSupervisor: () => number | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/**
 * Keeps a client connected to its supervisor: connects again with a growing delay when the
 * connection is lost, and detects a supervisor that accepts connections and does not answer.
 */
export class SupervisorLink<Connection extends LinkedConnection = SupervisorConnection> {
  /** The open connection, or the attempt to open one; undefined without a connection. */
  private connecting: Promise<Connection> | undefined;
  /** The connection whose supervisor has sent its hello. */
  private answered: Connection | undefined;
  /** True once a supervisor has answered for the first time. Only this class writes it. */
  hasEverAnswered = false;
  private readonly closing = new AbortController();
  private readonly silenceWaits = new Set<() => void>();
  private answerTimer: Timer | undefined;
  private knownPid: number | undefined;
  private hasSilentSupervisor = false;
  private isReconnecting = false;
  /** Failed attempts in a row. */
  private failures = 0;

  constructor(private readonly options: SupervisorLinkOptions<Connection>) {}

  /** Aborted by {@link close}. */
  get signal(): AbortSignal {
    return this.closing.signal;
  }

  /** True while a supervisor that has accepted a new connection is silent. */
  get isSilent(): boolean {
    return this.hasSilentSupervisor;
  }

  /** Process id of the connected or of the silent supervisor; undefined when it is not known. */
  get supervisorPid(): number | undefined {
    return this.knownPid;
  }

  /**
   * Returns the open connection, or opens one.
   * @throws kind `unavailable` at once while the supervisor is silent, and as soon as it is found to
   *   be silent; the errors of {@link SupervisorLinkOptions.connect}.
   */
  async getConnection(): Promise<Connection> {
    if (this.hasSilentSupervisor) throw createSilentSupervisorError(this.knownPid);
    let onSilent = (): void => undefined;
    const silence = new Promise<never>((_, reject) => {
      onSilent = () => reject(createSilentSupervisorError(this.knownPid));
    });
    this.silenceWaits.add(onSilent);
    try {
      return await Promise.race([this.waitForConnection(), silence]);
    } finally {
      this.silenceWaits.delete(onSilent);
    }
  }

  /** As {@link getConnection}, but also waits for a supervisor that is silent. */
  waitForConnection(): Promise<Connection> {
    if (this.signal.aborted) return Promise.reject(createDisconnectedError());
    if (this.connecting === undefined) {
      const attempt = this.connect();
      this.connecting = attempt;
      attempt.catch(() => {
        if (this.connecting === attempt) this.connecting = undefined;
      });
    }
    return this.connecting;
  }

  /**
   * Returns the connection, or the attempt to open one. Opens none, so that a caller that repeats
   * the call at short intervals leaves the back-off between attempts as long as it is.
   * @throws kind `unavailable` when there is neither.
   */
  findConnection(): Promise<Connection> {
    return this.connecting ?? Promise.reject(createDisconnectedError());
  }

  /** Resolves as soon as a supervisor that accepts connections is silent. */
  waitForSilence(): Promise<void> {
    if (this.hasSilentSupervisor) return Promise.resolve();
    return new Promise((resolve) => this.silenceWaits.add(resolve));
  }

  /** Repeats the attempt to connect until an attempt succeeds or the link is closed. */
  async keepConnecting(): Promise<void> {
    if (this.isReconnecting) return;
    this.isReconnecting = true;
    const { clock, random, log } = this.options;
    try {
      while (!this.signal.aborted) {
        try {
          if ((await this.waitForConnection()).isOpen) return;
        } catch (reason) {
          if (this.signal.aborted) return;
          log.warn('supervisor not reached', errorFields(reason));
        }
        this.failures += 1;
        const delayMs = backoffDelayMs(RECONNECT, this.failures, random);
        await sleep(clock, delayMs, this.signal).catch(() => undefined);
      }
    } finally {
      this.isReconnecting = false;
    }
  }

  /** Closes the connection and ends an attempt to open one. Resolves when both have ended. */
  async close(): Promise<void> {
    if (this.signal.aborted) return;
    const { connecting } = this;
    this.closing.abort();
    this.answered?.close();
    (await connecting?.catch(() => undefined))?.close();
  }

  private async connect(): Promise<Connection> {
    let hasAnswered = false;
    try {
      const connection = await this.options.connect(
        {
          onAccepted: () => this.awaitAnswer(),
          onAnswered: (answered) => {
            hasAnswered = true;
            this.hasEverAnswered = true;
            this.awaitAnswer(); // to the first request of the attempt
            this.answered = answered;
            this.knownPid = answered.hello.pid;
          },
          onClosed: () => (hasAnswered ? this.onConnectionLost() : this.forgetSupervisor()),
        },
        this.signal,
      );
      this.failures = 0;
      return connection;
    } catch (reason) {
      this.forgetSupervisor();
      throw this.signal.aborted ? createDisconnectedError() : reason;
    } finally {
      this.endSilence();
    }
  }

  /** Counts the silence of the supervisor from now on, until the attempt has ended. */
  private awaitAnswer(): void {
    this.forgetSupervisor();
    if (this.signal.aborted) return;
    this.answerTimer = this.options.clock.setTimer(SILENT_AFTER_MS, () => {
      this.hasSilentSupervisor = true;
      this.knownPid = this.options.findSupervisor();
      this.options.log.warn('supervisor accepts connections and does not answer', {
        supervisorPid: this.knownPid,
      });
      for (const resolve of this.silenceWaits) resolve();
      this.silenceWaits.clear();
    });
  }

  private endSilence(): void {
    this.answerTimer?.cancel();
    this.hasSilentSupervisor = false;
  }

  /** The next supervisor is another process, which may answer. */
  private forgetSupervisor(): void {
    this.endSilence();
    this.knownPid = undefined;
  }

  /** Connects to a new supervisor at once, because running containers need a supervisor. */
  private onConnectionLost(): void {
    this.connecting = undefined;
    this.answered = undefined;
    this.forgetSupervisor();
    if (this.signal.aborted) return;
    this.options.onLost();
    void this.keepConnecting();
  }
}

/**
 * Creates the error for a supervisor that accepts connections and does not answer. The text says
 * what to do.
 */
export function createSilentSupervisorError(pid: number | undefined): CloudlessError {
  const silence = `has not answered for ${SILENT_AFTER_MS / 1_000} s`;
  return new CloudlessError(
    'unavailable',
    pid === undefined
      ? `the supervisor of the processes ${silence}; if the supervisor stays silent, read supervisor.log in its directory`
      : `the supervisor of the processes (process ${pid}) ${silence}; if the supervisor stays silent, run kill -9 ${pid} on the machine: another supervisor is started, and the processes keep running`,
  );
}
