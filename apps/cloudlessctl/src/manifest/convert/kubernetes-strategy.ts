import { withoutEmpty } from './source-map.js';
import type { SourceMap } from './source-map.js';

/**
 * Converts `strategy` of a Deployment and `updateStrategy` of a StatefulSet or DaemonSet to fields of
 * a rollout. The workload keeps as many available replicas as the source, also where the source
 * has no strategy and relies on the defaults of Kubernetes.
 * @param replicas - Wanted number of replicas, 0 or more; ignored for a DaemonSet.
 * @returns Empty for a ReplicaSet, which replaces no replicas.
 */
export function convertStrategy(
  kind: string,
  spec: SourceMap,
  replicas: number,
): Record<string, unknown> {
  if (kind === 'ReplicaSet') return {};
  const strategy = spec.takeMap(kind === 'Deployment' ? 'strategy' : 'updateStrategy');
  const type = strategy.takeText('type') ?? 'RollingUpdate';
  const rolling = strategy.takeMap('rollingUpdate');
  if (type === 'OnDelete')
    strategy.note('type', 'OnDelete has no equivalent: rollouts begin at once');
  else if (type !== 'RollingUpdate' && type !== 'Recreate')
    strategy.note('type', `${type} has no equivalent: replicas are replaced step by step`);
  const fields =
    type === 'Recreate'
      ? { strategy: 'RECREATE' }
      : kind === 'Deployment'
        ? convertDeployment(rolling, replicas, spec)
        : kind === 'StatefulSet'
          ? convertStatefulSet(rolling, replicas)
          : convertDaemonSet(rolling);
  rolling.finish();
  strategy.finish();
  return fields;
}

/**
 * A Deployment without the keys has 25 % of each. `minAvailable` is necessary only where no replica
 * may be unavailable: the default is 1 for one replica, and replicas - maxUnavailable where
 * `maxUnavailable` is above 0, which follows when the workload is scaled.
 * @see Kubernetes, pkg/controller/deployment/util: ResolveFenceposts
 */
function convertDeployment(
  rolling: SourceMap,
  replicas: number,
  spec: SourceMap,
): Record<string, unknown> {
  const surge = takeCount(rolling, 'maxSurge', '25%');
  const unavailable = takeCount(rolling, 'maxUnavailable', '25%');
  if (replicas === 0) {
    spec.note(
      'replicas',
      'without replicas, rollout.maxSurge, maxUnavailable and minAvailable are left out: set them with the number of replicas',
    );
    return {};
  }
  const maxSurge = resolveCount(surge, replicas, Math.ceil);
  const rounded = resolveCount(unavailable, replicas, Math.floor);
  const maxUnavailable = maxSurge === 0 && rounded === 0 ? 1 : rounded;
  notePercent(rolling, 'maxSurge', surge, replicas, maxSurge);
  notePercent(rolling, 'maxUnavailable', unavailable, replicas, maxUnavailable);
  if (maxUnavailable !== rounded && !unavailable.isPercent && unavailable.isGiven)
    rolling.note('maxUnavailable', 'became 1: without a surge, 0 would leave no possible move');
  return withoutEmpty({
    maxSurge: surge.isGiven || maxSurge !== 1 ? maxSurge : undefined,
    maxUnavailable: maxUnavailable > 0 ? maxUnavailable : undefined,
    minAvailable: maxUnavailable === 0 && replicas > 1 ? replicas : undefined,
  });
}

/** A StatefulSet stops each replica before the next one of the same slot starts. */
function convertStatefulSet(rolling: SourceMap, replicas: number): Record<string, unknown> {
  const unavailable = takeCount(rolling, 'maxUnavailable', '1');
  const maxUnavailable = Math.max(1, resolveCount(unavailable, replicas, Math.floor));
  notePercent(rolling, 'maxUnavailable', unavailable, replicas, maxUnavailable);
  return { maxSurge: 0, maxUnavailable };
}

/** A DaemonSet has as many replicas as matching nodes, and a workload one replica on each node. */
function convertDaemonSet(rolling: SourceMap): Record<string, unknown> {
  const surge = takeCount(rolling, 'maxSurge', '0');
  const unavailable = takeCount(rolling, 'maxUnavailable', '1');
  if (surge.value > 0)
    rolling.note('maxSurge', 'has no equivalent: the old replica of a node stops first');
  if (unavailable.isPercent)
    rolling.note(
      'maxUnavailable',
      'a percentage of nodes has no equivalent: became 1, set the number that you need',
    );
  else if (unavailable.value === 0)
    rolling.note('maxUnavailable', '0 has no equivalent: became 1, one node at a time');
  return { maxUnavailable: unavailable.isPercent ? 1 : Math.max(1, unavailable.value) };
}

/** A number of replicas, or a percentage of the wanted number. */
interface Count {
  readonly value: number;
  readonly isPercent: boolean;
  /** False: the default of Kubernetes. */
  readonly isGiven: boolean;
}

/** Takes a number or a percentage; the default for an absent value and, with a note, another one. */
function takeCount(map: SourceMap, key: string, fallback: string): Count {
  const text = map.takeText(key);
  const isValid = text !== undefined && /^\d{1,7}%?$/.test(text);
  if (text !== undefined && !isValid)
    map.note(
      key,
      `expected a number or a percentage, got ${JSON.stringify(text)}: became ${fallback}`,
    );
  const chosen = isValid ? text : fallback;
  return {
    value: Number.parseInt(chosen, 10),
    isPercent: chosen.endsWith('%'),
    isGiven: isValid,
  };
}

function resolveCount(
  { value, isPercent }: Count,
  replicas: number,
  round: (count: number) => number,
): number {
  return isPercent ? round((replicas * value) / 100) : value;
}

/** Reports a percentage of the file, because the number does not follow when replicas are scaled. */
function notePercent(
  map: SourceMap,
  key: string,
  { value, isPercent, isGiven }: Count,
  replicas: number,
  count: number,
): void {
  if (isPercent && isGiven) map.note(key, `${value}% of ${replicas} replicas became ${count}`);
}
