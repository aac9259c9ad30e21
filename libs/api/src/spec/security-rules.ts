import type { Violation } from '@cloudless/base';
import type { SecurityContext, WorkloadSpec } from '../gen.js';
import { findPathProblem } from './absolute-path.js';
import { ALL_CAPABILITIES, normalizeCapability } from './linux-capabilities.js';
import { parseProfile, parseSelinuxOptions } from './security-options.js';

/**
 * Validates the security context beyond the rules of the proto. The paths of the violations start
 * with `spec`.
 */
export function* validateSecurity({ security }: WorkloadSpec): Generator<Violation> {
  if (security === undefined) return;
  yield* validateUser(security);
  yield* validateCapabilities(security);
  yield* validateProfiles(security);
  if (security.privileged) yield* validatePrivileged(security);
}

/**
 * User names that most systems accept.
 * @see useradd(8)
 */
const USER_NAME = /^[A-Za-z_][A-Za-z0-9_.-]*$/;

function* validateUser({
  runAsUser,
  runAsGroup,
  runAsNonRoot,
  user,
}: SecurityContext): Generator<Violation> {
  if (user !== '') yield* validateUserName(user, { runAsUser, runAsNonRoot });
  if (runAsGroup !== undefined && runAsUser === undefined && user === '') {
    const message = 'a group needs a user: set spec.security.run_as_user or spec.security.user';
    yield { field: 'spec.security.run_as_group', message };
  }
  if (runAsNonRoot && runAsUser === 0n) {
    yield {
      field: 'spec.security.run_as_user',
      message: '0 is root, which run_as_non_root forbids',
    };
  }
}

function* validateUserName(
  user: string,
  {
    runAsUser,
    runAsNonRoot,
  }: Pick<SecurityContext, 'runAsNonRoot'> & { readonly runAsUser: bigint | undefined },
): Generator<Violation> {
  const field = 'spec.security.user';
  if (!USER_NAME.test(user)) {
    const message = `${JSON.stringify(user)} is not a user name such as nginx; use run_as_user for a numeric id`;
    yield { field, message };
  }
  if (runAsUser !== undefined)
    yield { field, message: 'cannot be combined with run_as_user; remove one of them' };
  if (!runAsNonRoot) return;
  const message = 'run_as_non_root cannot verify a user name; set run_as_user to a number';
  yield { field, message };
}

function* validateCapabilities({
  capabilitiesAdd,
  capabilitiesDrop,
}: SecurityContext): Generator<Violation> {
  yield* validateCapabilityNames('spec.security.capabilities_add', capabilitiesAdd);
  yield* validateCapabilityNames('spec.security.capabilities_drop', capabilitiesDrop);
  const dropped = new Set(capabilitiesDrop.map(normalizeCapability));
  for (const [index, text] of capabilitiesAdd.entries()) {
    const name = normalizeCapability(text);
    const field = `spec.security.capabilities_add[${index}]`;
    if (name === undefined) continue;
    if (dropped.has(name))
      yield { field, message: `${name} is both added and dropped; remove one of them` };
    else if (name === ALL_CAPABILITIES && dropped.size > 0) {
      yield {
        field,
        message:
          'ALL is added after the drop, so nothing would be dropped; list the capabilities to add',
      };
    }
  }
}

function* validateCapabilityNames(path: string, texts: readonly string[]): Generator<Violation> {
  for (const [index, text] of texts.entries()) {
    if (normalizeCapability(text) !== undefined) continue;
    const message = `${JSON.stringify(text)} is not a Linux capability; use a name such as NET_ADMIN or CAP_NET_ADMIN, or ALL`;
    yield { field: `${path}[${index}]`, message };
  }
}

function* validateProfiles({
  seccompProfile,
  apparmorProfile,
  selinuxOptions,
}: SecurityContext): Generator<Violation> {
  const seccomp = parseProfile(seccompProfile);
  const pathProblem =
    seccomp?.kind === 'localhost' ? findPathProblem(seccomp.reference) : undefined;
  if (seccomp === undefined || pathProblem !== undefined) {
    const detail = pathProblem === undefined ? '' : `; the path ${pathProblem}`;
    const message = `must be RuntimeDefault, Unconfined or localhost/ and the absolute path of a profile, such as localhost//etc/seccomp/web.json${detail}`;
    yield { field: 'spec.security.seccomp_profile', message };
  }
  const apparmor = parseProfile(apparmorProfile);
  if (
    apparmor === undefined ||
    (apparmor.kind === 'localhost' && /[\s\p{Cc}]/u.test(apparmor.reference))
  ) {
    const message =
      'must be RuntimeDefault, Unconfined or localhost/ and the name of a profile, such as localhost/web';
    yield { field: 'spec.security.apparmor_profile', message };
  }
  if (selinuxOptions !== '' && parseSelinuxOptions(selinuxOptions) === undefined) {
    const message =
      'must be user:role:type:level, where some parts may be empty, such as ::container_t:s0:c1,c2';
    yield { field: 'spec.security.selinux_options', message };
  }
}

/**
 * Rejects fields that container runtimes ignore in a privileged container, or that contradict it.
 * containerd sets no seccomp profile, no default AppArmor profile and no SELinux label there (its
 * `internal/cri/server`, `GenerateSeccompSpecOpts` and `GenerateApparmorSpecOpts`); the kubelet
 * refuses `allowPrivilegeEscalation: false` together with `privileged`.
 */
function* validatePrivileged(security: SecurityContext): Generator<Violation> {
  const ineffective: readonly (readonly [string, boolean])[] = [
    ['capabilities_drop', security.capabilitiesDrop.length > 0],
    ['seccomp_profile', !['', 'Unconfined'].includes(security.seccompProfile)],
    ['apparmor_profile', security.apparmorProfile === 'RuntimeDefault'],
    ['selinux_options', security.selinuxOptions !== ''],
    ['no_new_privileges', security.noNewPrivileges === true],
  ];
  for (const [name, isSet] of ineffective) {
    if (!isSet) continue;
    const message =
      'has no effect in a privileged container; remove it, or list the needed privileges instead of privileged';
    yield { field: `spec.security.${name}`, message };
  }
}
