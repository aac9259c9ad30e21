import type { Clock, Log, Random } from '@cloudless/base';
import type { Tracing } from '@cloudless/observability';
import type { StateStore } from '@cloudless/state-store';
import type { Watchdog } from './watchdog/watchdog.js';

/** The clock, log and identity of the process that runs a coordinator. */
export interface CoordinatorMachine {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly hostname: string;
  readonly pid: number;
  readonly version: string;
  /** Default: no tracing. */
  readonly tracing?: Tracing;
  /** Value of CLOUDLESS_TOKEN_SECRET. Default: the secret is in the identity directory. */
  readonly tokenSecret?: string | undefined;
  /** Value of CLOUDLESS_SECRETS_KEY. Default: none. */
  readonly secretsKey?: string | undefined;
  /** Value of CLOUDLESS_SECRETS_PASSPHRASE. Default: none. */
  readonly secretsPassphrase?: string | undefined;
  /**
   * A store that other coordinators use too, in place of the one that the settings name. The caller
   * closes it.
   */
  readonly sharedStore?: StateStore | undefined;
  /** Ends the process when the store hangs. Default: none. */
  readonly watchdog?: Watchdog | undefined;
}
