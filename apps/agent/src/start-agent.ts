import type { Clock } from '@cloudless/base';
import type { ProcessStopSignal } from '@cloudless/app-kit';
import type { AgentConfig } from './agent-config.js';
import type { DataDirectory } from './data/data-directory.js';
import { abandonProxy, type EarlyProxy } from './network/early-proxy.js';

/**
 * Time limit of an aborted start. It takes milliseconds, unless a file system or a supervisor does
 * not answer.
 */
const GIVE_UP_WITHIN_MS = 2_000;

/** What the first part of a start hands to the rest. */
export interface BegunAgent {
  readonly config: AgentConfig;
  /** The locked data directory; the rest releases the lock. */
  readonly data: DataDirectory;
  /** The network proxy, which is starting; undefined: the node has none. */
  readonly proxy: EarlyProxy | undefined;
  /** Aborted by the first stop signal. */
  readonly signal: AbortSignal;
  /** Resolves with the first stop signal. */
  readonly stopped: Promise<ProcessStopSignal>;
  /** Call it once the agent runs: from then on, an end may take as long as it needs. */
  readonly onReady: () => void;
}

export interface StartSteps {
  readonly lockDataDirectory: (path: string) => Promise<DataDirectory>;
  /** Keeps stop signals from ending the process at once, see `endOnStopSignals`. */
  readonly untilStopped: () => Promise<ProcessStopSignal>;
  readonly startProxy: () => Promise<EarlyProxy | undefined>;
  /** Loads the code of the rest. */
  readonly loadRest: () => Promise<(begun: BegunAgent) => Promise<number>>;
  /** Ends this process at once. */
  readonly endBySignal: (signal: ProcessStopSignal) => void;
  readonly clock: Clock;
}

/**
 * Starts an agent in two parts. The first part locks the data directory and starts the network
 * proxy, for which clients wait when both were killed. Then it loads the rest of the code, which
 * takes several times as long, while the proxy starts.
 *
 * The data directory comes first: a second agent must not touch the proxy of the first agent. A
 * failure before the rest runs, or a stop signal that the rest does not follow within 2 s, ends the
 * proxy that this start has started, unless that proxy outlives a failed start.
 * @returns The exit code of the rest.
 */
export async function startAgent(config: AgentConfig, steps: StartSteps): Promise<number> {
  const data = await steps.lockDataDirectory(config.dataDir);
  const stopping = new AbortController();
  let proxy: EarlyProxy | undefined;
  let isStarting = true;
  // From here on, a stop has something to close.
  const stopped = steps.untilStopped();
  void stopped.then((signal) => {
    stopping.abort();
    if (!isStarting) return;
    steps.clock.setTimer(GIVE_UP_WITHIN_MS, () => {
      abandonProxy(proxy);
      steps.endBySignal(signal);
    });
  });
  let runRest: (begun: BegunAgent) => Promise<number>;
  try {
    proxy = await steps.startProxy();
    runRest = await steps.loadRest();
  } catch (reason) {
    abandonProxy(proxy);
    await data.release();
    throw reason;
  }
  const { signal } = stopping;
  return runRest({ config, data, proxy, signal, stopped, onReady: () => (isStarting = false) });
}
