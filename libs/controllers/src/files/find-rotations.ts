import type { WorkloadRecord } from '@cloudless/api/store';
import {
  findNewestVersion,
  findVersionKeys,
  isRotated,
  listFileRefs,
  toNoun,
  type ClusterView,
  type FilesView,
} from '@cloudless/cluster-state';

/** A secret or config with a newer version than the newest version of a workload keeps. */
export interface Rotation {
  readonly noun: 'secret' | 'config';
  readonly name: string;
  /** 0 when the version of the workload keeps none. */
  readonly from: number;
  readonly to: number;
  /** Keys that the workload names and the newest version does not have. */
  readonly missingKeys: readonly string[];
}

/**
 * Returns the secrets and configs whose new versions a workload has to roll out. Empty when the
 * newest version of the workload keeps the newest versions. Pure.
 */
export function findRotations(
  view: FilesView & Pick<ClusterView, 'version'>,
  { uid, namespace, version, spec }: WorkloadRecord,
): readonly Rotation[] {
  const template = view.version(uid, version)?.template;
  if (spec === undefined || template === undefined) return [];
  const kept = new Map(
    listFileRefs(template).map(({ kind, ref }) => [`${kind}/${ref.name}`, ref.version]),
  );
  return listFileRefs(spec).flatMap(({ kind, ref }) => {
    if (!isRotated(ref)) return [];
    const to = findNewestVersion(view, kind, namespace, ref.name);
    const from = kept.get(`${kind}/${ref.name}`) ?? 0;
    if (to === undefined || from === to) return [];
    const keys = findVersionKeys(view, kind, { namespace, name: ref.name, version: to }) ?? [];
    const missingKeys = ref.keys.map(({ key }) => key).filter((key) => !keys.includes(key));
    return [{ noun: toNoun(kind), name: ref.name, from, to, missingKeys }];
  });
}

/** Describes a rotation for events: `secret db version 3 -> 4`. */
export function describeRotation({ noun, name, from, to }: Rotation): string {
  return `${noun} ${name} version ${from} -> ${to}`;
}
