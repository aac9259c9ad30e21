/**
 * The grammar of image references, which container runtimes use.
 * @see github.com/distribution/reference, `regexp.go`
 */
const REFERENCE = (() => {
  const label = '[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?';
  const host = `(?:${label}(?:\\.${label})*|\\[[0-9A-Fa-f:]+\\])(?::[0-9]+)?`;
  const segment = '[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*';
  const name = `(?:${host}/)?${segment}(?:/${segment})*`;
  const tag = '\\w[\\w.-]{0,127}';
  const digest = 'sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}';
  return new RegExp(`^${name}(?::${tag})?(?:@(?:${digest}))?$`);
})();

/**
 * Returns true for an image reference: `nginx`, `registry.example/team/web:1.2`, `web@sha256:…`.
 */
export function isImageReference(text: string): boolean {
  return REFERENCE.test(text);
}
