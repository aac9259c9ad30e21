import { equals } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, toTemplate, type WorkloadSpec } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import {
  listFileRefs,
  requireFilesGuard,
  toConfigKeyId,
  toNoun,
  type ClusterView,
  type FileRef,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import { getSpec } from '../lookup.js';

/** A change of a workload whose references are checked. */
interface CheckedSpec {
  readonly namespace: string;
  readonly name: string;
  /** Undefined when the change creates the workload. */
  readonly current: Stored<WorkloadRecord> | undefined;
  readonly spec: WorkloadSpec;
}

/** One version of a secret or config: its keys, with the sizes of their values. */
interface KnownVersion {
  readonly version: number;
  readonly sizes: Readonly<Record<string, number>>;
}

/**
 * Checks the references of a new spec to secrets and configs. A change that makes no new version of
 * the workload is not checked.
 * @throws reason MISSING_REFERENCE with the path of the first field that names what does not exist;
 *   kind `invalid` when `env` needs a single key.
 */
export function checkFileRefs(view: ClusterView, change: CheckedSpec): void {
  if (!hasNewTemplate(change)) return;
  for (const ref of listFileRefs(change.spec)) checkFileRef(view, change, ref);
}

/**
 * Checks the references as {@link checkFileRefs} does, and makes the commit conflict when a secret or
 * config of the namespace changes meanwhile.
 */
export function putFileRefs(
  view: ClusterView,
  transaction: Transaction,
  change: CheckedSpec,
): void {
  checkFileRefs(view, change);
  if (hasNewTemplate(change) && listFileRefs(change.spec).length > 0)
    requireFilesGuard(view, transaction, change.namespace);
}

function hasNewTemplate({ current, spec }: CheckedSpec): boolean {
  return (
    current === undefined ||
    !equals(WorkloadSpecSchema, toTemplate(getSpec(current.value)), toTemplate(spec))
  );
}

function checkFileRef(view: ClusterView, { namespace }: CheckedSpec, file: FileRef): void {
  const { kind, ref, index } = file;
  const path = `spec.${kind}[${index}]`;
  const noun = toNoun(kind);
  const subject = `${noun} "${namespace}/${ref.name}"`;
  const versions = findVersions(view, namespace, file);
  if (versions === undefined)
    throw createMissingError(`${path}.name`, `${subject} not found; create the ${noun} first`);
  const version = ref.version === 0 ? versions.at(-1)?.version : ref.version;
  const known = versions.find((kept) => kept.version === version);
  if (known === undefined) {
    const kept = versions.map((each) => each.version).join(', ');
    const message = `${subject} has no version ${ref.version}; the kept versions are ${kept}`;
    throw createMissingError(`${path}.version`, message);
  }
  const keys = Object.keys(known.sizes);
  for (const [position, { key }] of ref.keys.entries())
    if (!keys.includes(key)) {
      const message = `version ${known.version} of ${subject} has no key "${key}"; its keys are ${keys.sort().join(', ')}`;
      throw createMissingError(`${path}.keys[${position}].key`, message);
    }
  if (ref.env !== '' && keys.length !== 1) {
    const message = `version ${known.version} of ${subject} has ${keys.length} keys, and one variable has one value; name the key and its variable in keys`;
    throw createMissingError(`${path}.env`, message);
  }
}

/** Returns the kept versions, ascending; undefined when there is no such secret or config. */
function findVersions(
  view: ClusterView,
  namespace: string,
  { kind, ref }: FileRef,
): readonly KnownVersion[] | undefined {
  if (kind === 'configs') return view.config(toConfigKeyId(namespace, ref.name))?.value.versions;
  return undefined;
}

function createMissingError(field: string, message: string): CloudlessError {
  return new CloudlessError('MISSING_REFERENCE', `${field}: ${message}`);
}
