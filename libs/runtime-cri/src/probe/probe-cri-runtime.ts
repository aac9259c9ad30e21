import type { Clock } from '@cloudless/base';
import { CriClient } from '../client/cri-client.js';
import { LABELS } from '../containers/labels.js';
import type { PodSandbox, RuntimeCondition } from '../gen/runtime/v1/api_pb.js';
import { readMachineFeatures } from '../system/machine-features.js';
import { toCapabilities, type Permissions } from './capabilities.js';

/** Needs of {@link probeCriRuntime}. */
export interface CriProbeOptions extends Permissions {
  /** Absolute path of the runtime's Unix socket. */
  readonly socketPath: string;
  readonly clock: Clock;
  /** How long a runtime may take for each of three answers. Default 5 s. */
  readonly limitMs?: number;
}

/** What answers at a socket. */
export interface CriProbe {
  /** As `containerd` and `1.6.20`. */
  readonly name: string;
  readonly version: string;
  /** Containers can be run now. */
  readonly ready: boolean;
  /**
   * Why not, in the runtime's own words, one each: `NetworkReady is false: cni plugin not
   * initialized (NetworkPluginNotReady)`.
   */
  readonly notReady: readonly string[];
  /**
   * Sandboxes that no Cloudless made: how many, and up to 3 of their names, as
   * `kube-system/coredns`.
   */
  readonly foreign: { readonly count: number; readonly names: readonly string[] };
  /** What a node has with it, in alphabetical order. */
  readonly capabilities: readonly string[];
}

const LIMIT_MS = 5_000;
const NAMES = 3;
/** Without these nothing runs; runtimes tell of other things too, as of old settings. */
const NEEDED = ['RuntimeReady', 'NetworkReady'];

/**
 * Asks who answers at a socket, and changes nothing there.
 * @throws kind `unavailable` when nobody answers, `unimplemented` when it speaks another interface.
 */
export async function probeCriRuntime(options: CriProbeOptions): Promise<CriProbe> {
  const { socketPath, clock, limitMs = LIMIT_MS } = options;
  const client = new CriClient({ socketPath, clock, quickMs: limitMs });
  try {
    const { runtimeName: name, runtimeVersion: version } = await client.version();
    const status = await client.quick('Status', (calls, signal) =>
      calls.status({ verbose: true }, { signal }),
    );
    const { items } = await client.quick('ListPodSandbox', (calls, signal) =>
      calls.listPodSandbox({}, { signal }),
    );
    const conditions = status.status?.conditions ?? [];
    const notReady = NEEDED.flatMap((type) =>
      whyNot(
        type,
        conditions.find((each) => each.type === type),
      ),
    );
    const foreign = items.filter(({ labels }) => !(LABELS.cluster in labels));
    return {
      name,
      version,
      ready: notReady.length === 0,
      notReady,
      foreign: { count: foreign.length, names: foreign.slice(0, NAMES).map(nameOf) },
      capabilities: toCapabilities(status, readMachineFeatures(), options),
    };
  } finally {
    client.close();
  }
}

function whyNot(type: string, condition: RuntimeCondition | undefined): readonly string[] {
  if (condition === undefined) return [`${type} is not told`];
  const { status, reason, message } = condition;
  return status
    ? []
    : [`${type} is false: ${message || 'no reason given'}${reason === '' ? '' : ` (${reason})`}`];
}

function nameOf({ id, metadata }: PodSandbox): string {
  if (metadata === undefined) return id;
  return metadata.namespace === '' ? metadata.name : `${metadata.namespace}/${metadata.name}`;
}
