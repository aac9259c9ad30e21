import { create } from '@bufbuild/protobuf';
import { NetworkSettingsRecordSchema, type NetworkSettingsRecord } from '@cloudless/api/store';
import { errorFields, sleep, type Clock, type Log } from '@cloudless/base';
import {
  NETWORK_SETTINGS_KEY,
  type ClusterState,
  type ClusterView,
} from '@cloudless/cluster-state';
import { DEFAULT_CLUSTER_DOMAIN, DEFAULT_SERVICE_CIDR } from '@cloudless/network';

/** Settings of the network that an operator gave. Undefined: keep what is stored. */
export interface WantedNetworkSettings {
  readonly serviceCidr?: string | undefined;
  readonly clusterDomain?: string | undefined;
}

export interface NetworkSettingsDeps {
  readonly state: Pick<ClusterState, 'view' | 'transaction' | 'commitObserved'>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Time until a failed write of the settings is repeated, milliseconds. */
const RETRY_MS = 1_000;

/**
 * Stores the settings of the network at the start of a leadership. The range of virtual addresses
 * does not change while a service has an address of it, nor the domain while there is a service:
 * running containers keep their search domains.
 */
export class NetworkSettings {
  private readonly stopping = new AbortController();
  private readonly running: Promise<void>;

  constructor(
    private readonly deps: NetworkSettingsDeps,
    private readonly wanted: WantedNetworkSettings,
  ) {
    this.running = this.run();
  }

  /** Returns why the stored settings differ from the wanted ones, a sentence each. */
  listWarnings(): readonly string[] {
    const { serviceCidr, clusterDomain } = this.wanted;
    const stored = this.deps.state.view().networkSettings()?.value;
    if (stored === undefined) return [];
    const warnings: string[] = [];
    if (serviceCidr !== undefined && stored.serviceCidr !== serviceCidr)
      warnings.push(
        `--service-cidr ${serviceCidr} is not in use: services have addresses of ${stored.serviceCidr}; delete them, and restart the coordinator an hour later`,
      );
    if (clusterDomain !== undefined && stored.clusterDomain !== clusterDomain)
      warnings.push(
        `--cluster-domain ${clusterDomain} is not in use: services have names below ${stored.clusterDomain}; start all coordinators with ${stored.clusterDomain}, or delete all services and restart the coordinator`,
      );
    return warnings;
  }

  async close(): Promise<void> {
    this.stopping.abort();
    await this.running;
  }

  private async run(): Promise<void> {
    const { state, clock, log } = this.deps;
    const { signal } = this.stopping;
    while (!signal.aborted) {
      const view = state.view();
      const stored = view.networkSettings();
      const next = planSettings(view, stored?.value, this.wanted);
      if (next === undefined) return;
      try {
        await state.commitObserved(
          state
            .transaction()
            .require('network', NETWORK_SETTINGS_KEY, stored ?? 'absent')
            .put('network', NETWORK_SETTINGS_KEY, next),
        );
        const { serviceCidr, clusterDomain } = next;
        log.info('network settings stored', { serviceCidr, clusterDomain });
        return;
      } catch (reason) {
        log.warn('network settings not stored yet', errorFields(reason));
        await sleep(clock, RETRY_MS, signal).catch(() => undefined);
      }
    }
  }
}

/** Returns the settings to store; undefined when the stored ones stay. */
function planSettings(
  view: ClusterView,
  stored: NetworkSettingsRecord | undefined,
  wanted: WantedNetworkSettings,
): NetworkSettingsRecord | undefined {
  const isFixed = stored !== undefined && hasAssignedAddress(view);
  const serviceCidr = isFixed
    ? stored.serviceCidr
    : (wanted.serviceCidr ?? stored?.serviceCidr ?? DEFAULT_SERVICE_CIDR);
  const isNamed = stored !== undefined && hasService(view);
  const clusterDomain = isNamed
    ? stored.clusterDomain
    : (wanted.clusterDomain ?? stored?.clusterDomain ?? DEFAULT_CLUSTER_DOMAIN);
  if (stored?.serviceCidr === serviceCidr && stored.clusterDomain === clusterDomain)
    return undefined;
  return create(NetworkSettingsRecordSchema, { serviceCidr, clusterDomain });
}

function hasService(view: ClusterView): boolean {
  return [...view.services()].length > 0;
}

function hasAssignedAddress(view: ClusterView): boolean {
  for (const { value } of view.services()) if (value.clusterIp !== '') return true;
  return false;
}
