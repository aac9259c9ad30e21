/** Most addresses of one cluster. Clusters have three or five coordinators. */
export const MAX_SERVERS = 16;

/**
 * Returns the addresses in the text of a setting: one address, or several separated by commas.
 * Without repetitions and slashes at the end.
 */
export function splitServers(server: string): readonly string[] {
  return [...new Set(server.split(',').map((address) => address.trim().replace(/\/$/, '')))];
}

/** Returns the text of a setting with these addresses. */
export function joinServers(addresses: readonly string[]): string {
  return [...new Set(addresses)].slice(0, MAX_SERVERS).join(',');
}

/** Returns the first address of a setting. */
export function firstServer(server: string): string {
  return splitServers(server)[0] ?? server;
}
