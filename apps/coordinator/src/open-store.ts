import { PreloadedView } from '@cloudless/cluster-state';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { openEtcdStateStore, type EtcdStateStore } from '@cloudless/state-store-etcd';
import { listRemotePlaintext, readEtcdOptions } from '@cloudless/state-store-etcd/settings';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';
import type { CoordinatorConfig } from './config.js';
import type { CoordinatorMachine } from './coordinator-machine.js';
import type { StoreHealth } from './store-health.js';

/**
 * Interval at which the data file and its lock are checked while nothing is written, milliseconds.
 * A lost file is detected at the latest after this time.
 */
const CHECK_INTERVAL_MS = 1_000;

/** An open store. */
export interface OpenedStore {
  readonly store: StateStore;
  /** The records that LMDB has read at its opening. Incomplete, thus ignored, for other engines. */
  readonly preloaded: PreloadedView;
  /**
   * Lets this coordinator drop old history of the store, or not. Call it with true while this
   * coordinator leads. Has no effect on an engine that only one process uses.
   */
  readonly setCompacting: (isCompacting: boolean) => void;
}

/**
 * Opens the store that the settings name, watched by the watchdog of the machine.
 * @param health - Receives what the store reports about itself, and that a call hangs.
 */
export async function openStore(
  config: CoordinatorConfig,
  machine: CoordinatorMachine,
  health: StoreHealth,
): Promise<OpenedStore> {
  const preloaded = new PreloadedView();
  const engine: StateStore | EtcdStateStore =
    machine.sharedStore ?? (await openEngine(config, machine, health, preloaded));
  machine.watchdog?.onStall(health.reportEnd);
  return {
    store: machine.watchdog?.watch(engine) ?? engine,
    preloaded,
    setCompacting: (isCompacting) => {
      if (isCompactable(engine)) engine.setCompacting(isCompacting);
    },
  };
}

function isCompactable(
  engine: StateStore | EtcdStateStore,
): engine is StateStore & Pick<EtcdStateStore, 'setCompacting'> {
  return 'setCompacting' in engine;
}

async function openEngine(
  config: CoordinatorConfig,
  { clock, log }: CoordinatorMachine,
  health: StoreHealth,
  preloaded: PreloadedView,
): Promise<StateStore | EtcdStateStore> {
  const { historyBytes } = config;
  if (config.state === 'etcd') {
    const plaintext = listRemotePlaintext(config);
    if (plaintext.length > 0)
      log.warn(
        'etcd is reached in plaintext: whoever can change packets on this network rules the cluster; use https:// endpoints',
        { endpoints: plaintext },
      );
    return openEtcdStateStore({
      ...(await readEtcdOptions(config)),
      clock,
      historyBytes,
      log: log.child({ component: 'store' }),
      onSpaceChange: health.reportQuota,
    });
  }
  if (config.state === 'memory') {
    log.warn('state is kept in memory only: all state is lost when the coordinator stops');
    return createMemoryStateStore({ clock, historyBytes });
  }
  return openLmdbStateStore({
    directory: config.dataDir,
    historyBytes,
    clock,
    log: log.child({ component: 'store' }),
    onDiskSpaceChange: health.reportDiskSpace,
    onFault: health.reportFault,
    checkIntervalMs: CHECK_INTERVAL_MS,
    entryConsumer: preloaded,
  });
}
