import { equals } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, toTemplate, type WorkloadSpec } from '@cloudless/api';
import type { SecretRecord, WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import {
  listFileRefs,
  findVersionKeys,
  listKeptVersions,
  putFilesUse,
  toNoun,
  toSecretKeyId,
  type ClusterView,
  type FileRef,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import { getSpec, type WorkloadName } from '../lookup.js';
import { findAudienceProblem, findSecretProblem } from './secret-use.js';

/** A change of a workload whose references are checked. */
interface CheckedSpec {
  readonly namespace: string;
  readonly name: string;
  /** Undefined when the change creates the workload. */
  readonly current: Stored<WorkloadRecord> | undefined;
  readonly spec: WorkloadSpec;
}

/**
 * Checks the references of a new spec to secrets and configs. A change that makes no new version of
 * the workload is not checked.
 * @throws reason MISSING_REFERENCE with the path of the first field that names what does not exist;
 *   kind `invalid` when `env` needs a single key.
 */
export function checkFileRefs(view: ClusterView, change: CheckedSpec, nowMs: number): void {
  if (!hasNewTemplate(change)) return;
  for (const file of listFileRefs(change.spec)) {
    checkFileRef(view, change, file);
    if (file.kind === 'secrets') checkSecret(view, change, toCheckedUse(file), nowMs);
  }
  const pullSecret = change.spec.imagePull?.secret ?? '';
  if (pullSecret !== '') checkPullSecret(view, change, pullSecret, nowMs);
}

/**
 * Checks the references as {@link checkFileRefs} does, and makes the commit conflict when a secret or
 * config of the namespace changes meanwhile.
 */
export function putFileRefs(
  view: ClusterView,
  transaction: Transaction,
  change: CheckedSpec,
  nowMs: number,
): void {
  checkFileRefs(view, change, nowMs);
  if (!hasNewTemplate(change)) return;
  if (listFileRefs(change.spec).length > 0 || (change.spec.imagePull?.secret ?? '') !== '')
    putFilesUse(view, transaction, change.namespace);
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
  const versions = listKeptVersions(view, kind, namespace, ref.name);
  if (versions === undefined)
    throw createMissingError(`${path}.name`, `${subject} not found; create the ${noun} first`);
  const version = ref.version === 0 ? (versions.at(-1) ?? 0) : ref.version;
  const keys = findVersionKeys(view, kind, { namespace, name: ref.name, version });
  if (keys === undefined) {
    const message = `${subject} has no version ${version}; the kept versions are ${versions.join(', ')}`;
    throw createMissingError(`${path}.version`, message);
  }
  for (const [position, { key }] of ref.keys.entries())
    if (!keys.includes(key)) {
      const message = `version ${version} of ${subject} has no key "${key}"; its keys are ${keys.join(', ')}`;
      throw createMissingError(`${path}.keys[${position}].key`, message);
    }
  if (ref.env !== '' && keys.length !== 1) {
    const message = `version ${version} of ${subject} has ${keys.length} keys, and one variable has one value; name the key and its variable in keys`;
    throw createMissingError(`${path}.env`, message);
  }
}

/** The use of a secret by a workload, and the fields that the errors name. */
interface CheckedUse {
  readonly name: string;
  /** Empty: the audience of the workload. */
  readonly audience: string;
  /** Paths of the fields that the errors name. */
  readonly fields: { readonly name: string; readonly audience: string };
}

function toCheckedUse({ ref, index }: Extract<FileRef, { kind: 'secrets' }>): CheckedUse {
  const path = `spec.secrets[${index}]`;
  const { name, audience } = ref;
  return { name, audience, fields: { name: `${path}.name`, audience: `${path}.audience` } };
}

/** Checks that a secret exists, has not expired, and allows the workload. */
function checkSecret(
  view: ClusterView,
  workload: CheckedSpec,
  { name, audience, fields }: CheckedUse,
  nowMs: number,
): void {
  const { namespace } = workload;
  const use = { namespace, name, audience: resolveAudience(workload, audience) };
  const problem = findSecretProblem(view, use, nowMs);
  if (problem === undefined) return;
  const field = problem.reason === 'AudienceNotPermitted' ? fields.audience : fields.name;
  throw createMissingError(field, problem.message);
}

/** Checks that a secret has the keys that a registry needs. */
function checkPullSecret(
  view: ClusterView,
  workload: CheckedSpec,
  name: string,
  nowMs: number,
): void {
  const field = 'spec.image_pull.secret';
  checkSecret(
    view,
    workload,
    { name, audience: '', fields: { name: field, audience: field } },
    nowMs,
  );
  const key = toSecretKeyId(workload.namespace, name);
  const keys = Object.keys(view.secret(key)?.value.versions.at(-1)?.sizes ?? {}).sort();
  if (keys.includes('.dockerconfigjson')) return;
  if (keys.includes('username') && keys.includes('password')) return;
  const message = `secret "${key}" needs the keys username and password, or .dockerconfigjson; its keys are ${keys.join(', ')}`;
  throw createMissingError(field, message);
}

/** @param audience - Empty: that of the workload. */
function resolveAudience({ namespace, name }: WorkloadName, audience: string): string {
  return audience === '' ? `workload/${namespace}.${name}` : audience;
}

/**
 * Checks that a secret allows a workload.
 * @param audience - Empty: that of the workload.
 * @throws reason MISSING_REFERENCE.
 */
export function requireAudience(
  secret: SecretRecord,
  workload: WorkloadName,
  audience: string,
): void {
  const problem = findAudienceProblem(secret, resolveAudience(workload, audience));
  if (problem !== undefined) throw new CloudlessError('MISSING_REFERENCE', problem);
}

/**
 * Creates the error of a field that names an object which does not exist or cannot be used.
 * @param field - Path of the field: `spec.tls.certificate_secret`.
 */
export function createMissingError(field: string, message: string): CloudlessError {
  return new CloudlessError('MISSING_REFERENCE', `${field}: ${message}`);
}
