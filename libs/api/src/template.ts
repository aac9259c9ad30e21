import { clone } from '@bufbuild/protobuf';
import { withDefaults } from './defaults.js';
import {
  ImagePullSchema,
  NetworkSchema,
  SecurityContextSchema,
  WorkloadSpecSchema,
  type WorkloadSpec,
} from './gen.js';
import { isPresent } from './is-present.js';

/**
 * The replica template: the spec with its defaults, without what a new version is not needed for.
 */
export function toTemplate(spec: WorkloadSpec): WorkloadSpec {
  return withoutSettings(withoutNeedless(withDefaults(spec)));
}

/** The part of a spec that a version keeps, as it was written: without the defaults. */
export function templatePart(spec: WorkloadSpec): WorkloadSpec {
  return withoutSettings(clone(WorkloadSpecSchema, spec));
}

/** Takes out, in place, what a new version is not needed for. */
function withoutSettings(spec: WorkloadSpec): WorkloadSpec {
  delete spec.replicas;
  delete spec.rollout;
  delete spec.disconnect;
  return spec;
}

/**
 * Takes out, in place, what of a container says no more than its absence does. These defaults
 * cannot be filled in instead: they are no part of a process, and nodes are chosen by what is
 * written.
 */
function withoutNeedless(spec: WorkloadSpec): WorkloadSpec {
  const { security } = spec;
  if (security?.noNewPrivileges === !security?.privileged) delete security?.noNewPrivileges;
  if (security?.seccompProfile === 'RuntimeDefault') security.seccompProfile = '';
  if (!isPresent(SecurityContextSchema, security)) delete spec.security;
  if (!isPresent(NetworkSchema, spec.network)) delete spec.network;
  if (!isPresent(ImagePullSchema, spec.imagePull)) delete spec.imagePull;
  return spec;
}
