import type { Clock } from '@cloudless/base';
import { CriClient } from '../client/cri-client.js';
import { LABELS } from '../containers/labels.js';
import type { PodSandbox, RuntimeCondition } from '../gen/runtime/v1/api_pb.js';
import { confirmPacketFilter } from '../egress/confirm-packet-filter.js';
import { readMachineFeatures } from '../system/machine-features.js';
import { toCapabilities, type Permissions } from './capabilities.js';

/** The container runtime to probe, and what this agent may do. */
export interface CriProbeOptions extends Permissions {
  /** Absolute path of the Unix socket of the container runtime. */
  readonly socketPath: string;
  readonly clock: Clock;
  /** Timeout of each of the three calls in milliseconds. Default 5 s. */
  readonly limitMs?: number;
}

/** State and capabilities of a container runtime. */
export interface CriProbe {
  /** Name of the runtime, such as `containerd`. */
  readonly name: string;
  /** Version of the runtime, such as `1.6.20`. */
  readonly version: string;
  /** True when the runtime can run containers now. */
  readonly ready: boolean;
  /**
   * Reasons for `ready: false` in the words of the runtime, such as `NetworkReady is false: cni
   * plugin not initialized (NetworkPluginNotReady)`.
   */
  readonly notReady: readonly string[];
  /**
   * Sandboxes that Cloudless did not create: their number, and up to 3 of their names, such as
   * `kube-system/coredns`.
   */
  readonly foreign: { readonly count: number; readonly names: readonly string[] };
  /** Capabilities that a node gets from this runtime, in alphabetical order. */
  readonly capabilities: readonly string[];
}

/** Default of `limitMs`: a probe runs while a user or an agent waits for its result. */
const LIMIT_MS = 5_000;
/** Largest number of names of foreign sandboxes: examples for a message. */
const MAX_NAMES = 3;
/**
 * Conditions that must be true to run containers. Runtimes report further conditions, for example
 * about deprecated settings, which are ignored.
 */
const REQUIRED_CONDITIONS = ['RuntimeReady', 'NetworkReady'];

/**
 * Reads state and capabilities of the container runtime at a socket. Changes nothing.
 * @throws kind `unavailable` when no runtime answers, `unimplemented` when the runtime has another
 *   version of the interface.
 */
export async function probeCriRuntime(options: CriProbeOptions): Promise<CriProbe> {
  const { socketPath, clock, limitMs = LIMIT_MS } = options;
  const client = new CriClient({ socketPath, clock, quickTimeoutMs: limitMs });
  try {
    const { runtimeName: name, runtimeVersion: version } = await client.version();
    const status = await client.callQuick('Status', (calls, signal) =>
      calls.status({ verbose: true }, { signal }),
    );
    const { items } = await client.callQuick('ListPodSandbox', (calls, signal) =>
      calls.listPodSandbox({}, { signal }),
    );
    const conditions = status.status?.conditions ?? [];
    const notReady = REQUIRED_CONDITIONS.flatMap((type) =>
      describeNotReady(
        type,
        conditions.find((each) => each.type === type),
      ),
    );
    const machine = await confirmPacketFilter(readMachineFeatures());
    const foreign = items.filter(({ labels }) => !(LABELS.cluster in labels));
    return {
      name,
      version,
      ready: notReady.length === 0,
      notReady,
      foreign: { count: foreign.length, names: foreign.slice(0, MAX_NAMES).map(formatSandboxName) },
      capabilities: toCapabilities(status, machine, options),
    };
  } finally {
    client.close();
  }
}

/** Returns the reason why a required condition is not true; empty when it is true. */
function describeNotReady(
  type: string,
  condition: RuntimeCondition | undefined,
): readonly string[] {
  if (condition === undefined) return [`${type} is not reported`];
  const { status, reason, message } = condition;
  return status
    ? []
    : [`${type} is false: ${message || 'no reason given'}${reason === '' ? '' : ` (${reason})`}`];
}

function formatSandboxName({ id, metadata }: PodSandbox): string {
  if (metadata === undefined) return id;
  return metadata.namespace === '' ? metadata.name : `${metadata.namespace}/${metadata.name}`;
}
