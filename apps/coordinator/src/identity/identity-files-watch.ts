import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import { logFailure, type Clock, type Log, type Timer } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import type { Metrics } from '@cloudless/observability';

export interface IdentityFilesWatchOptions {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  /** The identity directory. */
  readonly directory: string;
  /** Returns what is wrong with the files of the directory. Undefined: a restart would find all. */
  readonly findProblem: () => Promise<string | undefined>;
}

/** Interval of the checks. Each reads about ten small files. */
const INTERVAL_MS = 60_000;

/**
 * Notices that the identity directory is lost or damaged while the coordinator runs: the keys in
 * memory still serve, but the next start would be refused.
 */
export class IdentityFilesWatch {
  private timer: Timer | undefined;
  private warning: string | undefined;
  private isClosed = false;

  constructor(private readonly options: IdentityFilesWatchOptions) {
    const complete = options.metrics.gauge({
      name: 'cloudless_identity_files_complete',
      help: '1 while a restart of the coordinator would find its keys and its token secret, 0 while files of the identity directory are missing or damaged.',
    });
    options.metrics.onExpose(() => complete.set(this.warning === undefined ? 1 : 0));
    this.arm();
  }

  close(): void {
    this.isClosed = true;
    this.timer?.cancel();
  }

  /** Returns warnings for operators, one sentence each. */
  listWarnings(): readonly string[] {
    return this.warning === undefined ? [] : [this.warning];
  }

  /** Checks the files now. */
  async check(): Promise<void> {
    const { directory, findProblem, log } = this.options;
    const problem = await findProblem();
    const isKnown = (problem === undefined) === (this.warning === undefined);
    this.warning =
      problem &&
      `${problem}. The coordinator works until its next start, which will be refused: restore ${directory} from its backup, or without a backup run "cloudlessctl admin rotate-ca --wait", which makes new keys, before this coordinator stops`;
    if (isKnown || this.isClosed) return;
    if (this.warning === undefined) log.info('identity files complete again', { directory });
    else {
      log.error('identity files lost', { directory, problem });
      await this.report(this.warning);
    }
  }

  private async report(message: string): Promise<void> {
    const { state } = this.options;
    const severity = Severity.ERROR;
    const reason = 'IdentityFilesLost';
    await state.commitObserved(
      state.transaction().event({ severity, category: Category.MEMBERSHIP, reason, message }),
    );
  }

  private arm(): void {
    if (this.isClosed) return;
    const { clock, log } = this.options;
    this.timer = clock.setTimer(INTERVAL_MS, () => {
      this.check()
        .catch((reason: unknown) => logFailure(log, 'identity files not checked', reason))
        .finally(() => this.arm());
    });
  }
}
