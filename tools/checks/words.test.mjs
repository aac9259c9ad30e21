// Words that the glossary replaces must not come back. Each row: the retired word as a regular
// expression, and the word to use.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';

const RETIRED = [
  // The kind and key of the record on disk keep the name.
  [/\brequireEvidence\b|(?<!['"`./])\bevidence\b(?![:'"`]| too)/, 'readiness guard, node facts'],
  [/\bunproven\b/i, 'not yet available'],
  [/\bhomeless\b/i, 'unplaced'],
  [/\b(?:World|Moves|Places|Plan)Ahead\b/, 'dry run'],
  [/\b(?:takeMoves|takeSteps|takeNode)\b/, 'simulateRollout, applySteps, upsertNode'],
  [/\b(?:settleEnded|followDisconnect|askedFor|movingOf)\b/, 'names of the glossary'],
  [/\b(?:withoutConflict|checkedSpec|actOf)\b/, 'retryOnConflict, validateSpec, AuditEntry'],
  [/\b(?:StoreAge|noticeNewer)\b/, 'RollbackDetector, reportNewerState'],
  [/\b(?:SoftChanges|touchedBySoft)\b/, 'LivenessChanges, affectedByLiveness'],
  [/\b(?:cutUnread|tellOfHold)\b/, 'slow-reader timeout, reportReplacementPause'],
  [/\b(?:companyFailure|roomFailure|letsIn|forbiddenBy)\b/, 'Filter of the scheduler'],
  [/\b(?:RoomWatch|StoreRoom|onRoom|noRoomFor)\b/, 'DiskSpaceMonitor, diskFullError'],
  [/\b(?:LateRuntime|KnownCapabilities)\b/, 'LazyRuntime, CapabilityCache'],
  [/\bmuseum\b/i, 'bug catalogue'],
  [/\bHerdChecker\b/, 'ReconnectStormChecker'],
  [/\b(?:Sightings|drain-board|power-of-ten)\b/, 'ChangeObserver, drain progress, log sampling'],
  [/\b(?:movesAhead|planAhead|worldAhead)\b/, 'dry run'],
];

/** Every line of code and documents, with its place. */
const lines = execFileSync(
  'git',
  ['ls-files', '-z', 'apps', 'libs', 'tools', 'docs', 'proto', '*.md'],
  {
    encoding: 'utf8',
  },
)
  .split('\0')
  .filter(
    (file) =>
      /\.(?:ts|mjs|cjs|md|proto)$/.test(file) &&
      !file.includes('/gen/') &&
      // They show retired words as examples.
      !['tools/checks/words.test.mjs', 'CONTRIBUTING.md'].includes(file),
  )
  .flatMap((file) =>
    readFileSync(file, 'utf8')
      .split('\n')
      .map((text, index) => ({ text, place: `${file}:${index + 1}` })),
  );

describe('code and documents', () => {
  for (const [word, instead] of RETIRED)
    it(`do not use ${word.source}: ${instead}`, () => {
      const places = lines.flatMap(({ text, place }) =>
        word.test(text) ? [`${place}: ${text.trim()}`] : [],
      );
      assert.deepEqual(places, []);
    });
});
