import { clone } from '@bufbuild/protobuf';
import {
  ImagePullSchema,
  NetworkSchema,
  SecurityContextSchema,
  WorkloadSpecSchema,
  type WorkloadSpec,
} from '../gen.js';
import { withDefaults } from './defaults.js';
import { isPresent } from './is-present.js';

/**
 * Returns the replica template of a spec in canonical form, so that two specs need the same version
 * exactly when their templates are equal: absent fields are filled in with their defaults, and
 * container settings that equal their defaults are removed.
 */
export function toTemplate(spec: WorkloadSpec): WorkloadSpec {
  return removeSettings(removeDefaults(withDefaults(spec)));
}

/** Returns the replica template of a spec as the user wrote it, without defaults. */
export function extractTemplate(spec: WorkloadSpec): WorkloadSpec {
  return removeSettings(clone(WorkloadSpecSchema, spec));
}

/** Removes the fields, in place, whose change needs no new version. */
function removeSettings(spec: WorkloadSpec): WorkloadSpec {
  delete spec.replicas;
  delete spec.rollout;
  delete spec.disconnect;
  spec.expose = [];
  return spec;
}

/**
 * Removes container settings, in place, that equal their default. These defaults cannot be filled
 * in instead: a process has no such settings, and nodes are filtered by the settings that are
 * present.
 */
function removeDefaults(spec: WorkloadSpec): WorkloadSpec {
  const { security } = spec;
  if (security?.noNewPrivileges === !security?.privileged) delete security?.noNewPrivileges;
  if (security?.seccompProfile === 'RuntimeDefault') security.seccompProfile = '';
  if (!isPresent(SecurityContextSchema, security)) delete spec.security;
  if (!isPresent(NetworkSchema, spec.network)) delete spec.network;
  if (!isPresent(ImagePullSchema, spec.imagePull)) delete spec.imagePull;
  return spec;
}
