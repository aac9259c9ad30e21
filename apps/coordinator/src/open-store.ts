import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { openLmdbStateStore } from '@cloudless/state-store-lmdb';
import type { CoordinatorConfig } from './config.js';
import type { CoordinatorMachine } from './coordinator.js';
import type { StoreHealth } from './store-health.js';

/**
 * Interval at which the data file and its lock are checked while nothing is written, milliseconds.
 * A lost file is detected at the latest after this time.
 */
const CHECK_INTERVAL_MS = 1_000;

/**
 * Opens the store that the settings name, watched by the watchdog of the machine.
 * @param health - Receives what the store reports about itself, and that a call hangs.
 */
export async function openStore(
  config: CoordinatorConfig,
  machine: CoordinatorMachine,
  health: StoreHealth,
): Promise<StateStore> {
  const store = await openEngine(config, machine, health);
  machine.watchdog?.onStall(health.reportEnd);
  return machine.watchdog?.watch(store) ?? store;
}

function openEngine(
  config: CoordinatorConfig,
  { clock, log }: CoordinatorMachine,
  health: StoreHealth,
): Promise<StateStore> {
  const { historyBytes } = config;
  if (config.state === 'memory') {
    log.warn('state is kept in memory only: all state is lost when the coordinator stops');
    return Promise.resolve(createMemoryStateStore({ clock, historyBytes }));
  }
  return openLmdbStateStore({
    directory: config.dataDir,
    historyBytes,
    clock,
    log: log.child({ component: 'store' }),
    onDiskSpaceChange: health.reportDiskSpace,
    onFault: health.reportFault,
    checkIntervalMs: CHECK_INTERVAL_MS,
  });
}
