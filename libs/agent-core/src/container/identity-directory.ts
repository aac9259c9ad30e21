/** Directory on this node with files of one replica. */
export interface IdentityDirectory {
  readonly path: string;
  /** True when a tmpfs is mounted at `path`. */
  readonly inMemory: boolean;
}
