/** Version of this release; the same for all programs. */
export const VERSION = '0.1.0';

/** Set by `tools/build.mjs` in every bundle that is built in a clone of the repository. */
declare const CLOUDLESS_COMMIT: string | undefined;

/**
 * Git commit of the bundle: 12 hex digits, with `-dirty` when the clone had changes that were not
 * committed. Undefined in a bundle that was built without git, and outside a bundle.
 */
export const COMMIT: string | undefined =
  typeof CLOUDLESS_COMMIT === 'undefined' ? undefined : CLOUDLESS_COMMIT;

/**
 * Version and commit in the form of SemVer, `0.1.0+1a2b3c4d5e6f`; the version alone without a commit.
 * For people and reports: programs of different builds work together, so nothing compares builds.
 */
export const BUILD = COMMIT === undefined ? VERSION : `${VERSION}+${COMMIT}`;
