import { CertificateAuthorityRotation_Phase as Phase } from '@cloudless/api';
import type { CertificateAuthority, CertificateAuthorityRotation } from '@cloudless/api';
import { formatCount } from '../output/human.js';
import { formatStyledTime } from '../output/style.js';
import type { Style } from '../output/style.js';
import { timestampMs } from '../output/timestamp.js';
import { describeExpiry } from './expiry.js';
import { formatFields } from './sections.js';

/** Waiting nodes and users that a line names. */
const NAMED = 5;

const PHASE_TEXTS: Readonly<Record<Phase, string>> = {
  [Phase.PHASE_UNSPECIFIED]: 'unknown phase',
  [Phase.DISTRIBUTING]: 'phase 1 of 2, the new root is distributed',
  [Phase.REISSUING]: 'phase 2 of 2, certificates are issued by the new root',
  [Phase.COMPLETED]: 'complete, only the new root is trusted',
};

/** Describes how to replace, during a rotation, everything that names the old root. */
export const TOKEN_ADVICE = [
  'tokens from before this rotation name only the old root: after the rotation, their holders do not trust the coordinator any more. Tokens that are created from now on name both roots. While the rotation runs, replace',
  '  join tokens:  cloudlessctl token create, cloudlessctl node join-command',
  '  user tokens:  cloudlessctl user token create USER',
  '  CA files:     cloudlessctl admin ca --pem > ca.crt',
  'the coordinator writes its files admin.credential and join-command again',
].join('\n');

/** Formats a certificate authority: its roots, and the progress of its rotation. */
export function formatAuthority(
  authority: CertificateAuthority,
  nowMs: number,
  style: Style,
): string {
  const { trustDomain, trustBundleGeneration, roots, rotation } = authority;
  const summary = formatFields([
    ['Trust domain', trustDomain],
    ['Trust bundle', `generation ${trustBundleGeneration}, ${formatCount(roots.length, 'root')}`],
    ['Rotation', rotation === undefined ? 'none yet' : formatProgress(rotation)],
    ['Started', formatStyledTime(rotation?.startedAt, style)],
    ['Completed', formatStyledTime(rotation?.completedAt, style)],
  ]);
  const sections = roots.map((root) =>
    formatFields([
      ['Root', `generation ${root.generation}${root.issues ? ', issues certificates' : ''}`],
      [
        'Valid until',
        `${formatStyledTime(root.notAfter, style)} (${describeExpiry(root.notAfter === undefined ? 0 : timestampMs(root.notAfter), nowMs)})`,
      ],
      ['Fingerprint', `SHA-256 ${root.sha256}`],
    ]),
  );
  return [summary, ...sections].join('\n');
}

/** Formats the progress of a rotation as one line. */
export function formatRotationLine(rotation: CertificateAuthorityRotation | undefined): string {
  return rotation === undefined ? 'rotation: none' : `rotation: ${formatProgress(rotation)}`;
}

function formatProgress(rotation: CertificateAuthorityRotation): string {
  const { phase, waitingNodes, waitingNodeCount, waitingUsers, completedNodeCount } = rotation;
  const { waitingCoordinators } = rotation;
  if (phase === Phase.COMPLETED) return PHASE_TEXTS[phase];
  const total = completedNodeCount + waitingNodeCount;
  const waiting = [
    ...(waitingCoordinators.length === 0
      ? []
      : [`waiting for coordinators ${nameSome(waitingCoordinators, waitingCoordinators.length)}`]),
    ...(waitingNodeCount === 0
      ? []
      : [`waiting for nodes ${nameSome(waitingNodes, waitingNodeCount)}`]),
    ...(waitingUsers.length === 0
      ? []
      : [`waiting for users ${nameSome(waitingUsers, waitingUsers.length)}`]),
  ];
  return [
    PHASE_TEXTS[phase],
    `${completedNodeCount} of ${formatCount(total, 'node')}`,
    ...waiting,
  ].join('; ');
}

/** Returns the first names: `a, b and 3 more`. */
function nameSome(names: readonly string[], count: number): string {
  const named = names.slice(0, NAMED);
  const rest = count - named.length;
  return rest > 0 ? `${named.join(', ')} and ${rest} more` : named.join(', ');
}
